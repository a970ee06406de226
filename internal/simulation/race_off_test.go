//go:build !race

package simulation

const fewer = 1
