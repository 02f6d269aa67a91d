package output_test

import (
	"testing"

	"cloop.dev/cloop/internal/fleet/output"
)

// BenchmarkRender is each format of 10,000 pools with a problem each.
func BenchmarkRender(b *testing.B) {
	result := output.Judge(pools(repeated(10_000, [2]int{1, 0})...))
	for _, format := range output.Formats() {
		b.Run(string(format), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				data, err := output.Render(format, result, options)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(data)))
			}
		})
	}
}
