package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"example.com/weir/internal/explain"
)

func explainCommand(j Job) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "explain", Short: "Print the job's graph: operators, chains, exchanges, and what sinks promise",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			g, err := j.Graph()
			if err != nil {
				return failed(err)
			}
			drawing, err := explain.Draw(g, format)
			if err != nil {
				return usage(err)
			}
			fmt.Fprint(c.OutOrStdout(), drawing)
			return nil
		},
	}
	c.Flags().StringVar(&format, "format", "text", "text, dot (Graphviz) or mermaid")
	return c
}
