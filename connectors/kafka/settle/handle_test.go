package settle

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestAHandleDecodesToWhatWasEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := tableHandle()
		h.TransactionalID = drawID(t, "id").String()
		h.ProducerID = rapid.Int64Range(0, 1<<62).Draw(t, "producer")
		h.Epoch = rapid.Int16Range(0, 1<<14).Draw(t, "epoch")
		h.Parts[1].Last = rapid.Int64Range(100, 1<<40).Draw(t, "last")
		payload, err := h.Encode()
		require.NoError(t, err)
		back, err := DecodeHandle(payload)
		require.NoError(t, err)
		require.Equal(t, h, back)
	})
}

func TestANewerHandleIsRefusedByNumber(t *testing.T) {
	payload, err := tableHandle().Encode()
	require.NoError(t, err)
	payload[0] = version + 1
	_, err = DecodeHandle(payload)
	require.ErrorContains(t, err, "format 2; this release reads 1")
	_, err = DecodeHandle(nil)
	require.ErrorContains(t, err, "empty")
	_, err = DecodeHandle([]byte{version, 0xff})
	require.Error(t, err)
}

func TestAnIncompleteHandleIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Handle){
		"no cluster":    func(h *Handle) { h.ClusterID = "" },
		"no ID":         func(h *Handle) { h.TransactionalID = "" },
		"no producer":   func(h *Handle) { h.ProducerID = -1 },
		"empty":         func(h *Handle) { h.Parts = nil },
		"no records":    func(h *Handle) { h.Parts[0].Records = 0 },
		"last < first":  func(h *Handle) { h.Parts[0].Last = 99 },
		"out of order":  func(h *Handle) { h.Parts[1].Partition = 0 },
		"offset absent": func(h *Handle) { h.Parts[1].First = -1 },
	} {
		h := tableHandle()
		spoil(h)
		_, err := h.Encode()
		require.Error(t, err, name)
	}
}
