//go:build next

package main

import "fmt"

type account struct{ Purchases, Cents int }

func (a *account) add(p *purchase) { a.Purchases, a.Cents = a.Purchases+1, a.Cents+p.Cents }

func (a *account) String() string { return fmt.Sprint(" ", a.Purchases, " cents ", a.Cents) }
