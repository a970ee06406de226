package replay

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Row is a request of a trace.
type Row struct {
	At              time.Time // arrival
	ContextTokens   int64
	GeneratedTokens int64
}

// ReadTrace reads a trace in the form of the Azure LLM inference traces: CSV with the header
// TIMESTAMP,ContextTokens,GeneratedTokens, times like 2023-11-16 18:17:03.9799600 (UTC) that
// never go back, and numbers of tokens from 0 to 2^53. An error names the line.
func ReadTrace(r io.Reader) ([]Row, error) {
	lines := csv.NewReader(r)
	lines.FieldsPerRecord = 3
	lines.ReuseRecord = true
	header, err := lines.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("trace: no header")
	}
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	if got := strings.Join(header, ","); got != "TIMESTAMP,ContextTokens,GeneratedTokens" {
		return nil, fmt.Errorf("trace: line 1: header %q, want TIMESTAMP,ContextTokens,GeneratedTokens", got)
	}
	var rows []Row
	for {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		line, _ := lines.FieldPos(0)
		row, err := parseRow(fields)
		if err != nil {
			return nil, fmt.Errorf("trace: line %d: %w", line, err)
		}
		if len(rows) > 0 && row.At.Before(rows[len(rows)-1].At) {
			return nil, fmt.Errorf("trace: line %d: %s is before the line above", line, fields[0])
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil, errors.New("trace: no rows")
	}
	return rows, nil
}

func parseRow(fields []string) (Row, error) {
	var row Row
	var err error
	if row.At, err = time.Parse("2006-01-02 15:04:05", fields[0]); err != nil || strings.Contains(fields[0], ",") {
		return row, fmt.Errorf("TIMESTAMP %q is not a time like 2023-11-16 18:17:03.9799600", fields[0])
	}
	if row.ContextTokens, err = parseTokens(fields[1]); err != nil {
		return row, fmt.Errorf("ContextTokens %q: %w", fields[1], err)
	}
	if row.GeneratedTokens, err = parseTokens(fields[2]); err != nil {
		return row, fmt.Errorf("GeneratedTokens %q: %w", fields[2], err)
	}
	return row, nil
}

func parseTokens(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 54)
	if err != nil || n > 1<<53 {
		return 0, errors.New("not an integer from 0 to 2^53")
	}
	return int64(n), nil
}
