//go:build race

package simulation

// fewer is what the number of seeds is divided by: each world has one thread, so the race detector learns the
// same from the first as from the last.
const fewer = 10
