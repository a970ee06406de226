package txn

import "errors"

// ErrNoRight reports that this client may not write control records: that takes the right
// CLUSTER_ACTION on the cluster.
var ErrNoRight = errors.New("no right to write transaction markers")
