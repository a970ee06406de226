package checkpoint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
)

// A restore warns of a transaction by how long it has been open, in whichever process that was.
func TestAManifestKeepsWhenATransactionWasOpened(t *testing.T) {
	s, err := Open("file://"+t.TempDir(), testOptions())
	require.NoError(t, err)
	defer s.Close()
	opened := time.Date(2026, 3, 1, 12, 0, 0, 5000, time.UTC)
	noted, earlier := committableOf(1, 20), committableOf(2, 20)
	noted.Opened = opened
	ref, err := s.PutManifest(t.Context(), Manifest{
		Job: testOptions().Job, Lineage: testLineage, Generation: 1, Checkpoint: 2, Created: testTime(),
		Committables: []connector.Committable{noted, earlier},
	})
	require.NoError(t, err)
	m, err := s.GetManifest(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, opened, m.Committables[0].Opened)
	require.True(t, m.Committables[1].Opened.IsZero(), "a release that did not note it")
}
