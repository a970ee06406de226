package engine

import "example.com/weir/connector"

// Graph is a plan as it is shown to people. It holds data alone.
type Graph struct {
	Job            string
	MaxParallelism int
	Nodes          []Node // in the order in which the operators were added
}

// Node is an operator in a Graph.
type Node struct {
	UID         string
	Kind        string
	Parallelism int
	Stateful    bool
	// Chain is the uid of the operator at the head of the chain: those share a goroutine.
	Chain  string
	Inputs []Edge
	// Replayable says of a source whether records after a position can be read again.
	Replayable bool
	// Guarantee is what a sink's consumer was promised; Unstated for all others.
	Guarantee connector.Guarantee
	// TwoPhase says of a sink that it commits after the checkpoint.
	TwoPhase bool
}

// Edge is an input of an operator: where its rows come from, and how.
type Edge struct {
	From     string // uid
	Side     string // name of the side output of From; empty: its main output
	Exchange Exchange
}

// Exchange says which subtask a row goes to.
type Exchange string

// The exchanges. All but the first pass rows through channels, to another goroutine.
const (
	Chained   Exchange = "chained"   // the operators share a goroutine, and call each other
	Forward   Exchange = "forward"   // to the subtask with the index of its own
	Hash      Exchange = "hash"      // to the one that owns the row's key
	Rebalance Exchange = "rebalance" // to each in turn
	Broadcast Exchange = "broadcast" // to all
)

// toAll reports whether each subtask behind the exchange hears from every subtask before it.
func (x Exchange) toAll() bool { return x == Hash || x == Rebalance || x == Broadcast }

// Graph describes the plan.
func (p *Plan) Graph() Graph {
	g := Graph{Job: p.name, MaxParallelism: p.maxParallelism}
	for _, o := range p.operators {
		n := Node{
			UID: o.UID, Kind: o.Kind, Parallelism: p.parallelism, Stateful: o.Stateful,
			Chain: o.Chain, Inputs: o.Inputs,
		}
		p.describeEnds(&n)
		g.Nodes = append(g.Nodes, n)
	}
	return g
}

// describeEnds adds what a source or a sink promises.
func (p *Plan) describeEnds(n *Node) {
	for _, s := range p.sources {
		if s.uid == n.UID {
			n.Replayable = s.replayable
		}
	}
	for _, s := range p.sinks {
		if s.uid == n.UID {
			n.Guarantee, n.TwoPhase = s.guarantee, s.restore != nil
		}
	}
}
