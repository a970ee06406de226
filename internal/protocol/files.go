package protocol

// files knows, of each subtask of this generation, the files that later cuts may still name: those that
// the subtask named last. Later ones build on them, whether the checkpoints that they were written for
// exist or not. A chain only loses files at its old end and gets files of later checkpoints, and the
// first cut of a generation is whole; so what an answer does not name any more nothing names again.
type files struct {
	chains map[SubtaskID][]Handle
	// taken are those in chains that a checkpoint which exists has named: Collect deletes them, once no
	// manifest that is kept names them.
	taken map[string]bool
}

func newFiles() files {
	return files{chains: map[SubtaskID][]Handle{}, taken: map[string]bool{}}
}

// named notes what a subtask named last, and returns what it does not name any more and no checkpoint
// ever will (P11).
func (f *files) named(s SubtaskID, chain []Handle) (waste []Handle) {
	still := make(map[string]bool, len(chain))
	for _, h := range chain {
		still[h.Name] = true
	}
	for _, h := range f.chains[s] {
		if still[h.Name] {
			continue
		}
		if !f.taken[h.Name] {
			waste = append(waste, h)
		}
		delete(f.taken, h.Name)
	}
	f.chains[s] = chain
	return waste
}

// take notes that a checkpoint exists, and names these.
func (f *files) take(handles map[SubtaskID][]Handle) {
	for _, chain := range handles {
		for _, h := range chain {
			f.taken[h.Name] = true
		}
	}
}
