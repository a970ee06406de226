// Package rig is what demonstrations and labs are put together from: a broker with the job's topics, a
// replay that is written to one of them, the job as a process that can be killed, its log as a journal,
// and readers of what it wrote.
//
// It is not a test double of anything: the job is the real program in a process of its own, killed
// with SIGKILL; the broker is a Kafka cluster, or one that speaks its protocol inside this process,
// which is never killed. It decides nothing: when to kill and what that shows, its users say.
//
// Invariants:
//
//	P1. A kill hit a process that ran: one that had ended by itself is an error.
//	P2. No process is left by End.
//	P3. On a cluster every name is the run's own.
package rig
