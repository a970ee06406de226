package kafkatest

// Difference returns how many of the values wanted are missing among those that were read, and how many of those
// that were read are there too often, or are not wanted at all.
func Difference(want, got []string) (missing, doubled int) {
	left := map[string]int{}
	for _, v := range want {
		left[v]++
	}
	for _, v := range got {
		if left[v]--; left[v] < 0 {
			doubled++
		}
	}
	for _, n := range left {
		missing += max(n, 0)
	}
	return missing, doubled
}
