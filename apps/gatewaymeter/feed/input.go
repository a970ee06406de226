package feed

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"example.com/weir/apps/gatewaymeter/replay"
	"example.com/weir/apps/gatewaymeter/sample"
)

// Input is what a replay is made from.
type Input struct {
	Trace []replay.Row
	// Prices is the price book, and Models are the models that it prices.
	Prices []byte
	Models []replay.Model

	// TraceName and PricesName say where they come from: a path, or that it is the sample.
	TraceName, PricesName string
}

// sampleName stands for the files that are part of the program.
const sampleName = "the sample in the program"

// Load reads a trace and a price book. An empty path stands for the sample.
func Load(trace, prices string) (*Input, error) {
	in := &Input{TraceName: trace, PricesName: prices}
	text, err := read(trace, sample.Trace(), &in.TraceName)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	if in.Trace, err = replay.ReadTrace(bytes.NewReader(text)); err != nil {
		return nil, fmt.Errorf("%s: %w", in.TraceName, err)
	}
	if in.Prices, err = read(prices, sample.Prices(), &in.PricesName); err != nil {
		return nil, fmt.Errorf("price book: %w", err)
	}
	if in.Models, err = replay.ModelsOf(in.Prices); err != nil {
		return nil, fmt.Errorf("%s: %w", in.PricesName, err)
	}
	if len(in.Models) == 0 {
		return nil, fmt.Errorf("%s: no model with prices for input and output", in.PricesName)
	}
	return in, nil
}

func read(path string, own []byte, name *string) ([]byte, error) {
	if path == "" {
		*name = sampleName
		return own, nil
	}
	return os.ReadFile(path)
}

// Beside returns the paths of the public trace and price book where a folder shared/data lies
// beside the current folder, and empty ones, which stand for the sample, where it does not.
func Beside() (trace, prices string) {
	data := filepath.Join("..", "shared", "data")
	trace = filepath.Join(data, "azure-llm-2023", "code.csv")
	prices = filepath.Join(data, "genai-prices", "data.json")
	for _, path := range []string{trace, prices} {
		if _, err := os.Stat(path); err != nil {
			return "", ""
		}
	}
	return trace, prices
}
