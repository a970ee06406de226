//go:build !next

package main

import "fmt"

type account struct{ Purchases int }

func (a *account) add(*purchase) { a.Purchases++ }

func (a *account) String() string { return fmt.Sprint(" ", a.Purchases) }
