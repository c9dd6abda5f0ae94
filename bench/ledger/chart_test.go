package ledger

import (
	"bytes"
	"fmt"
	"math"
)

// A panel is one chart over the number of rows, both axes logarithmic.
type panel struct {
	title    string
	low, top float64 // of the vertical axis, powers of ten
	unit     string
	bound    float64 // what is promised at a million rows; 0 for nothing
	lines    []func(*sized) float64
	names    []string
}

const (
	panelWidth, panelHeight = 330.0, 250.0
	plotLeft, plotTop       = 52.0, 46.0
	plotWidth, plotHeight   = 256.0, 160.0
)

// drawSizes draws what [BenchmarkSize] has measured as an SVG.
func drawSizes(all []*sized) []byte {
	panels := []panel{
		{"Open and count", 1, 1e5, "ms", 1000, []func(*sized) float64{
			func(s *sized) float64 { return float64(s.Open) / 1000 }, func(s *sized) float64 { return float64(s.Known) / 1000 },
		}, []string{"open", "filter full"}},
		{"Resident memory", 10, 1e3, "MB", 150, []func(*sized) float64{
			func(s *sized) float64 { return float64(s.Resident) / 1e6 },
		}, []string{"process"}},
		{"A claim", 0.1, 100, "ms", 2 * float64(all[0].claim(0.99)) / 1000, []func(*sized) float64{
			func(s *sized) float64 { return float64(s.claim(0.5)) / 1000 }, func(s *sized) float64 { return float64(s.claim(0.99)) / 1000 },
		}, []string{"p50", "p99"}},
	}
	var b bytes.Buffer
	width := panelWidth * float64(len(panels))
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"Opening, memory and claims of a file ledger over the number of its rows\">\n", width, panelHeight, width, panelHeight)
	fmt.Fprintf(&b, "<rect width=\"100%%\" height=\"100%%\" rx=\"8\" fill=\"#0d1117\"/>\n<g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, monospace\" font-size=\"11\" fill=\"#8b949e\">\n")
	for i, p := range panels {
		fmt.Fprintf(&b, "<g transform=\"translate(%.0f 0)\">\n", panelWidth*float64(i))
		p.draw(&b, all)
		fmt.Fprint(&b, "</g>\n")
	}
	fmt.Fprint(&b, "</g>\n</svg>\n")
	return b.Bytes()
}

func (p panel) x(rows float64) float64 { return plotLeft + plotWidth*(math.Log10(rows)-3)/4 }
func (p panel) y(v float64) float64 {
	return plotTop + plotHeight*(1-math.Log10(v/p.low)/math.Log10(p.top/p.low))
}

func (p panel) draw(b *bytes.Buffer, all []*sized) {
	fmt.Fprintf(b, "<text x=\"%.0f\" y=\"24\" fill=\"#c9d1d9\" font-size=\"13\">%s, %s</text>\n", plotLeft, p.title, p.unit)
	for v := p.low; v <= p.top*1.01; v *= 10 {
		fmt.Fprintf(b, "<path d=\"M%.0f %.1fh%.0f\" stroke=\"#30363d\"/><text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", plotLeft, p.y(v), plotWidth, plotLeft-6, p.y(v)+4, v)
	}
	for e := 3; e <= 7; e++ {
		fmt.Fprintf(b, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">10<tspan dy=\"-4\" font-size=\"8\">%d</tspan></text>\n", p.x(math.Pow10(e)), plotTop+plotHeight+18, e)
	}
	fmt.Fprintf(b, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">rows</text>\n", plotLeft+plotWidth/2, plotTop+plotHeight+36)
	if p.bound > 0 {
		fmt.Fprintf(b, "<path d=\"M%.0f %.1fH%.1f\" stroke=\"#ffa198\" stroke-dasharray=\"4 3\"/><text x=\"%.0f\" y=\"%.1f\" fill=\"#ffa198\">bound at 10<tspan dy=\"-4\" font-size=\"8\">6</tspan></text>\n", plotLeft, p.y(p.bound), p.x(1e6), plotLeft+4, p.y(p.bound)-4)
	}
	colours := []string{"#7ee787", "#79c0ff"}
	for i, value := range p.lines {
		var path bytes.Buffer
		for n, s := range all {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(n, 1)], p.x(float64(s.Rows)), p.y(value(s)))
			fmt.Fprintf(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", p.x(float64(s.Rows)), p.y(value(s)), colours[i])
		}
		fmt.Fprintf(b, "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"/><text x=\"%.0f\" y=\"38\" fill=\"%s\">%s</text>\n", path.Bytes(), colours[i], plotLeft+90*float64(i), colours[i], p.names[i])
	}
}
