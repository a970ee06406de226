package simulation

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/connectors/kafka/txn"
	"example.com/weir/internal/protocol"
)

// recordID names a record of the job: the one at a place of a split.
type recordID struct{ split, at int }

func (r recordID) String() string { return fmt.Sprintf("r%d.%d", r.split, r.at) }

// record is the record as the job writes it.
func (r recordID) record(partitions int) txn.Record {
	return txn.Record{
		Partition: int32((r.at + r.split) % partitions), Timestamp: int64(1000*r.split + r.at),
		Key: []byte(strconv.Itoa(r.split)), Value: []byte(r.String()),
		Headers: []txn.Header{{Key: "at", Value: []byte(strconv.Itoa(r.at))}},
	}
}

// recordOf returns which record of the job this is, and false if it is not exactly one.
func recordOf(r *txn.Record) (id recordID, ok bool) {
	if _, err := fmt.Sscanf(string(r.Value), "r%d.%d", &id.split, &id.at); err != nil {
		return id, false
	}
	want := id.record(int(r.Partition) + 1)
	same := want.Timestamp == r.Timestamp && string(want.Key) == string(r.Key) && string(want.Value) == string(r.Value) &&
		len(r.Headers) == 1 && r.Headers[0].Key == "at" && string(r.Headers[0].Value) == string(want.Headers[0].Value)
	return id, same
}

// permitted is a committable with the permit to commit it.
type permitted struct {
	permit      protocol.CommitPermit
	committable connector.Committable
}

// subtask is a source and a sink in one chain: it reads splits in turn, writes each record and takes
// barriers in between.
type subtask struct {
	w     *world
	p     *process
	id    protocol.SubtaskID
	index int

	splits  []int
	at      positions
	turn    int
	barrier *protocol.InjectBarrier
	stopped bool // it reads no further
	ended   bool // InputEnded is said
	last    bool // the last barrier has passed

	pool      *txn.Pool
	taker     txn.Taker
	committer txn.Committer
	home      txn.Place
	writing   *transactionOpen
	next      *ahead

	commits []permitted
	cuts    []cut
}

// transactionOpen is the transaction that is being written.
type transactionOpen struct {
	slot    *txn.Slot
	parts   []settle.Part
	records []recordID
	kept    []byte
}

// ahead is a slot that is taken before it is needed.
type ahead struct {
	done bool
	slot *txn.Slot
	err  error
}

// cut is one subtask's part of a checkpoint.
type cut struct {
	checkpoint   uint64
	at           positions
	committables []connector.Committable
	kept         []byte // the records of the one committable that there can be
}

func newSubtask(p *process, index int, at positions) *subtask {
	s := &subtask{
		w: p.w, p: p, index: index, id: protocol.SubtaskID{Operator: sourceUID, Index: index}, at: positions{},
		pool: txn.NewPool(prefix, p.current.Lineage, index, p.w.cfg.Tolerable),
	}
	s.taker = txn.Taker{Config: p.cfg, StillOwner: p.stillOwner}
	s.committer = txn.Committer{Config: p.cfg, Pool: s.pool}
	for split := range p.w.cfg.Splits {
		if split%len(p.subtasks) == index {
			s.splits = append(s.splits, split)
			s.at[split] = at[split]
		}
	}
	return s
}

// open opens the writer.
func (s *subtask) open() (err error) {
	s.home, err = txn.Find(s.p.ctx, s.p.cfg.Cluster, topic)
	return err
}

func (s *subtask) spawn() {
	s.w.spawn(s.p, fmt.Sprintf("subtask %d", s.index), s.run)
	s.w.spawn(s.p, fmt.Sprintf("commits %d", s.index), s.commitAll)
	s.w.spawn(s.p, fmt.Sprintf("snapshots %d", s.index), s.writeSnapshots)
}

func (s *subtask) run() {
	for {
		s.w.wait(func() bool {
			return s.barrier != nil || !s.last && (s.more() >= 0 && !s.stopped || !s.ended && s.more() < 0)
		})
		var err error
		switch split := s.more(); {
		case s.barrier != nil:
			b := *s.barrier
			s.barrier = nil
			err = s.pass(b)
		case split < 0:
			s.ended = true
			s.p.post(protocol.InputEnded{Subtask: s.id})
		default:
			s.rest()
			if s.barrier == nil && !s.stopped {
				err = s.read(split)
			}
		}
		if err != nil {
			s.p.post(protocol.SubtaskFailed{Subtask: s.id, Err: err})
			return
		}
	}
}

// more returns a split with records left to read, or -1.
func (s *subtask) more() int {
	for i := range s.splits {
		if split := s.splits[(s.turn+i)%len(s.splits)]; s.at[split] < s.w.cfg.Records {
			return split
		}
	}
	return -1
}

// rest lets some time pass in front of a record.
func (s *subtask) rest() {
	if n := s.w.tape.pick(4); n > 0 {
		s.w.sleep(time.Duration(n) * interval / 2)
	}
}

// read reads one record of a split and writes it.
func (s *subtask) read(split int) error {
	r := recordID{split: split, at: s.at[split]}
	if err := s.write(r); err != nil {
		return fmt.Errorf("%s[%d]: %w", sinkUID, s.index, err)
	}
	s.at[split]++
	s.turn++
	return nil
}

// write writes a record into the open transaction, and begins one if there is none.
func (s *subtask) write(r recordID) error {
	if s.writing == nil {
		slot, err := s.ready()
		if err != nil {
			return err
		}
		s.writing = &transactionOpen{slot: slot, kept: txn.AppendKeptStart(nil)}
	}
	rec := r.record(len(s.w.broker.logs))
	parts, err := s.writing.slot.Producer.Write(s.p.ctx, topic, []txn.Record{rec})
	if err != nil {
		return err
	}
	s.writing.parts = note(s.writing.parts, rec.Partition, parts[0].First)
	s.writing.records = append(s.writing.records, r)
	s.writing.keep(&rec)
	return nil
}

func (t *transactionOpen) keep(r *txn.Record) {
	t.kept = txn.AppendKept(t.kept, r.Partition, r.Timestamp, r.Key, r.Value, len(r.Headers))
	for _, h := range r.Headers {
		t.kept = txn.AppendKeptHeader(t.kept, h.Key, h.Value)
	}
}

// ready returns a slot for the next transaction.
func (s *subtask) ready() (*txn.Slot, error) {
	if a := s.next; a != nil {
		s.w.wait(func() bool { return a.done })
		s.next = nil
		if a.err == nil {
			return a.slot, nil
		}
	}
	return s.takeFree()
}

// takeFree waits for a free slot and takes it.
func (s *subtask) takeFree() (*txn.Slot, error) {
	var slot *txn.Slot
	if slot = s.pool.Acquire(); slot == nil {
		s.w.counts.PoolFull++
		s.w.wait(func() bool {
			if slot == nil {
				slot = s.pool.Acquire()
			}
			return slot != nil
		})
	}
	t := s.w.running
	t.taking = true
	p, err := s.taker.Take(s.p.ctx, slot.ID)
	t.taking = false
	if err != nil {
		s.pool.GiveBack(slot)
		return nil, fmt.Errorf("begin transaction %s: %w", slot.ID, err)
	}
	slot.Producer = p
	return slot, nil
}

// takeAhead begins to take a slot for the next transaction.
func (s *subtask) takeAhead() {
	a := &ahead{}
	s.next = a
	s.w.spawn(s.p, fmt.Sprintf("slot ahead %d", s.index), func() {
		a.slot, a.err = s.takeFree()
		a.done = true
	})
}

// pass lets a barrier pass.
func (s *subtask) pass(b protocol.InjectBarrier) error {
	c := cut{checkpoint: b.Checkpoint, at: positions{}}
	for split, n := range s.at {
		c.at[split] = n
	}
	if s.writing != nil && s.w.cfg.Keep {
		c.kept = s.writing.kept
	}
	x, err := s.prepare(b.Checkpoint)
	if err != nil {
		return fmt.Errorf("%s[%d]: checkpoint %d: %w", sinkUID, s.index, b.Checkpoint, err)
	}
	if x != nil {
		c.committables = append(c.committables, *x)
	}
	s.last = b.Final != protocol.None
	s.cuts = append(s.cuts, c)
	return nil
}

// prepare names the flushed transaction in a committable.
func (s *subtask) prepare(checkpoint uint64) (*connector.Committable, error) {
	t := s.writing
	if t == nil {
		return nil, nil
	}
	producerID, epoch := t.slot.Producer.ID()
	h, err := s.p.cfg.Handle(s.p.ctx, &s.home, txn.Written{
		TransactionalID: t.slot.ID, ProducerID: producerID, Epoch: epoch,
		EndTxnVersion: t.slot.Producer.EndTxnVersion(), Parts: t.parts,
	})
	if err != nil {
		return nil, err
	}
	payload, err := h.Encode()
	if err != nil {
		return nil, err
	}
	s.pool.Pend(t.slot, h, checkpoint)
	s.writing = nil
	s.takeAhead()
	x := &connector.Committable{
		Sink: sinkUID, Subtask: s.index, Checkpoint: checkpoint, Digest: digest(t.records), Payload: payload,
	}
	if s.w.cfg.Keep {
		x.Kept.Name = fmt.Sprintf("g%d-%s", s.p.current.Generation, x.ID())
	}
	return x, nil
}

func digest(records []recordID) [32]byte {
	var b []byte
	for _, r := range records {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(r.split)), uint64(r.at))
	}
	return sha256.Sum256(b)
}

// writeSnapshots makes cuts durable and acknowledges their barriers, in order.
func (s *subtask) writeSnapshots() {
	for {
		s.w.wait(func() bool { return len(s.cuts) > 0 })
		c := s.cuts[0]
		s.cuts = s.cuts[1:]
		failed := s.keepRecords(&c)
		h, err := s.w.store.putSnapshot(s.id, c.checkpoint, c.at)
		if err = cmp.Or(err, failed); err != nil {
			s.w.counts.Declined++
			s.p.post(protocol.Declined{Checkpoint: c.checkpoint, Subtask: s.id, Committables: c.committables, Err: err})
			continue
		}
		s.p.post(protocol.Acknowledged{
			Checkpoint: c.checkpoint, Subtask: s.id, Handles: []protocol.Handle{h}, Committables: c.committables,
		})
	}
}

// keepRecords makes the records of the cut's committable durable. A committable whose records could not be kept
// goes on without them.
func (s *subtask) keepRecords(c *cut) error {
	if c.kept == nil {
		return nil
	}
	x := &c.committables[0]
	err := s.w.store.putKept(x.Kept.Name, c.kept)
	if err != nil {
		s.w.counts.NotKept++
		x.Kept = connector.Kept{}
	}
	return err
}

// commitAll commits what the subtask is told to, one after the other.
func (s *subtask) commitAll() {
	for {
		s.w.wait(func() bool { return len(s.commits) > 0 })
		x := s.commits[0]
		s.commits = s.commits[1:]
		s.p.post(s.commit(x))
	}
}

// commit is the one place that calls Commit.
func (s *subtask) commit(x permitted) protocol.Event {
	id := x.committable.ID()
	if !x.permit.Covers(id) {
		return protocol.CommitFailed{ID: id, Err: connector.Stop(fmt.Errorf("%s does not cover it", x.permit))}
	}
	if err := s.committer.Commit(s.p.ctx, x.committable); err != nil {
		return protocol.CommitFailed{ID: id, Err: err}
	}
	return protocol.CommitSettled{ID: id}
}
