package checkpoint

import "example.com/weir/internal/protocol"

// wireCurrent is how CURRENT is written. Its field names are the format.
type wireCurrent struct {
	Job        string   `json:"job"`
	Lineage    string   `json:"lineage"`
	Generation uint64   `json:"generation"`
	Checkpoint uint64   `json:"checkpoint"`
	Settled    bool     `json:"settled"`
	Finished   bool     `json:"finished"`
	Clean      bool     `json:"clean"`
	Manifest   *wireRef `json:"manifest,omitempty"` // none with checkpoint 0
	Nonce      string   `json:"nonce"`
	By         Holder   `json:"written_by"`
}

func encodeCurrent(c protocol.Current, by Holder) ([]byte, error) {
	w := wireCurrent{
		Job:        c.Job,
		Lineage:    c.Lineage,
		Generation: c.Generation,
		Checkpoint: c.Checkpoint,
		Settled:    c.Settled,
		Finished:   c.Finished,
		Clean:      c.Clean,
		Nonce:      c.Nonce,
		By:         by,
	}
	if c.Manifest != "" {
		w.Manifest = &wireRef{Name: c.Manifest, Digest: c.ManifestDigest}
	}
	return seal(currentKind, textVersion, w)
}

func decodeCurrent(data []byte) (protocol.Current, Holder, error) {
	var w wireCurrent
	if err := unseal(currentName, currentKind, data, &w); err != nil {
		return protocol.Current{}, Holder{}, err
	}
	c := protocol.Current{
		Job:        w.Job,
		Lineage:    w.Lineage,
		Generation: w.Generation,
		Checkpoint: w.Checkpoint,
		Settled:    w.Settled,
		Finished:   w.Finished,
		Clean:      w.Clean,
		Nonce:      w.Nonce,
	}
	if w.Manifest != nil {
		c.Manifest, c.ManifestDigest = w.Manifest.Name, w.Manifest.Digest
	}
	return c, w.By, nil
}
