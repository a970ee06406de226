// Package control is how a running job is reached: an HTTP endpoint that the job opens, and the client
// that commands use. It decides nothing about the job: what it is asked it hands on.
//
//	GET  /metrics, …         what the caller serves to everybody
//	GET  /debug/pprof/       profiles
//	GET  /control/status     what the job is doing (package status)
//	POST /control/stop       {"drain": false, "wait": true}; with wait, answered once the job has ended
//	POST /control/savepoint  {"name": "before-upgrade"}; answered once it is durable
//	DELETE /control/savepoint/NAME
//
// Whoever wants to reach a job knows where its checkpoints are. Beside them lies control.json, which
// says the address and a token.
//
// Invariants (the numbers are cited where code enforces them):
//
//	C1. Nobody but a process on this machine that can read control.json (0600, as the checkpoints)
//	    stops a job or takes a savepoint: /control/ wants the token, and a peer that is local.
//	C2. An address that other machines reach is refused unless that was asked for by name. Profiles
//	    are not handed out over it.
//	C3. control.json is written by the process that owns the checkpoints, and by no other.
//	C4. A control.json that a killed process left behind is told from a running job: what answers has
//	    to say the same job, or nobody is there.
//	C5. Nothing of a server outlives Close.
package control
