package archtest

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// checkWords finds what no file of the project says (A7). The words are spelled in pieces: this file
// is read, too.
func checkWords(t *tree) []string {
	forbidden := []struct{ pattern, why string }{
		{`(^|[^\w.~/-]|//)/(ho` + `me|ro` + `ot|wo` + `rk|Us` + `ers)/`, "is a path of one machine: use one below the repository or a temporary one"},
		{`\.lib` + `rary\b`, "is a folder that the project does not have"},
		{
			`\b(pro` + `xy\.golang|su` + `m\.golang|regis` + `try\.npmjs|py` + `pi|repo1?\.ma` + `ven|repo\.ma` + `ven\.apache|` +
				`cra` + `tes|ind` + `ex\.docker)\.(org|io|com)\b`,
			"is the host of a registry: which one is used is each machine's own business",
		},
		{`\b(TO` + `DO|FIX` + `ME)\b`, "marks unfinished work: finish it, or write down what is not done in the documentation"},
	}
	var bad []string
	for _, w := range forbidden {
		re := regexp.MustCompile(`(?m)` + w.pattern)
		for _, name := range slices.Sorted(maps.Keys(t.texts)) {
			for _, m := range re.FindAllIndex(t.texts[name], -1) {
				line := 1 + bytes.Count(t.texts[name][:m[0]], []byte("\n"))
				found := bytes.TrimSpace(t.texts[name][m[0]:m[1]])
				bad = append(bad, fmt.Sprintf("%s:%d: %q %s", name, line, found, w.why))
			}
		}
	}
	return bad
}
