package terminal

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// column is a column of a table: the first is flush left, and gives room first where there is too little; the others are
// flush right, and are shown whole or not at all. Half of a number is another number.
type column struct {
	head  string
	cells []string
	// spare says which column is left out first where there is no room for all: that with the highest. 0: never.
	spare int
}

// Between the columns, and the least that the first one is cut to.
const (
	gap       = "  "
	leastName = 12
)

func (c *column) width() int {
	w := utf8.RuneCountInString(c.head)
	for _, cell := range c.cells {
		w = max(w, utf8.RuneCountInString(cell))
	}
	return w
}

// says reports whether any cell says something.
func (c *column) says() bool {
	return slices.ContainsFunc(c.cells, func(cell string) bool { return cell != "" && cell != "-" })
}

// table draws columns within a width; 0 is as wide as it takes.
func table(columns []column, width int) []string {
	columns = fit(columns, width)
	lines := make([]string, len(columns[0].cells)+1)
	for i := range columns {
		c := &columns[i]
		w := c.width()
		if i == 0 && width > 0 {
			w = min(w, max(leastName, width-total(columns[1:])))
		}
		for j := range lines {
			cell := c.head
			if j > 0 {
				cell = c.cells[j-1]
			}
			cell = cut(cell, w)
			pad := strings.Repeat(" ", w-utf8.RuneCountInString(cell))
			if i == 0 {
				lines[j] = cell + pad
				continue
			}
			lines[j] += gap + pad + cell
		}
	}
	for j := range lines {
		lines[j] = strings.TrimRight(lines[j], " ")
	}
	return lines
}

// total is what columns take beside the first one.
func total(columns []column) (w int) {
	for i := range columns {
		w += len(gap) + columns[i].width()
	}
	return w
}

// fit leaves out columns until the others have room: those that say nothing first.
func fit(columns []column, width int) []column {
	columns = slices.Clone(columns)
	for width > 0 && columns[0].width()+total(columns[1:]) > width {
		least := 0
		for i := range columns {
			if c := &columns[i]; c.spare > 0 && (least == 0 || rank(c) > rank(&columns[least])) {
				least = i
			}
		}
		if least == 0 || onlyNames(columns, width) {
			return columns
		}
		columns = slices.Delete(columns, least, least+1)
	}
	return columns
}

// onlyNames reports whether there is room for all columns if the names are cut.
func onlyNames(columns []column, width int) bool {
	return leastName+total(columns[1:]) <= width && len(columns) <= fewColumns
}

// fewColumns is how many columns are worth more than whole names.
const fewColumns = 4

// rank orders the columns that can be spared.
func rank(c *column) int {
	if !c.says() {
		return c.spare + 100
	}
	return c.spare
}
