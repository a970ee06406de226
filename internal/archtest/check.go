package archtest

import "slices"

// check returns what is wrong with a module, one line each: where, what, and what to do.
func check(t *tree, rows []row, laws []law, testLibraries []string) []string {
	return slices.Concat(
		checkTable(t, rows, laws, testLibraries), checkSource(t, rows), checkSleeps(t), checkWords(t),
	)
}
