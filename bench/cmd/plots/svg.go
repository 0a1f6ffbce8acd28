package main

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// The drawing, in pixels.
const (
	width, height           = 800, 480
	left, right, above, low = 76, 190, 52, 64
)

// Colours that are told apart by the colour-blind (Okabe and Ito); lines differ
// in their marks and dashes as well.
var (
	colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#5a5a5a"}
	dashes  = []string{"", "7 4", "2 3", "9 3 2 3", "4 4"}
)

// axis is logarithmic. A size of 0 has a place of its own, a third of a decade
// before 1.
type axis struct {
	from, to float64 // powers of ten
	a, b     float64 // pixels
}

func (x axis) at(v float64) float64 {
	power := x.from
	if v > 0 {
		power = math.Log10(v)
	}
	return x.a + (power-x.from)/(x.to-x.from)*(x.b-x.a)
}

func draw(p *plot) string {
	xs, ys := axes(p)
	var b strings.Builder
	text := func(x, y float64, anchor, class, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>`+"\n", x, y, anchor, class, html.EscapeString(s))
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="t d">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title id=\"t\">%s</title>\n<desc id=\"d\">%s Both axes are logarithmic. The figures are in %s.csv.</desc>\n", html.EscapeString(p.title), html.EscapeString(p.desc), p.file)
	b.WriteString("<style>text{font:13px sans-serif;fill:#222}.h{font-size:16px;font-weight:bold}.grid{stroke:#ddd}.axis{stroke:#222}</style>\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	text(left, 30, "start", "h", p.title)
	for _, v := range ticks(xs, 1) {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`+"\n", xs.at(v), above, xs.at(v), height-low)
		text(xs.at(v), height-low+20, "middle", "", short(v))
	}
	if smallest(p) == 0 {
		text(xs.at(0), height-low+20, "middle", "", "0")
	}
	for _, v := range ticks(ys, 3) {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`+"\n", left, ys.at(v), width-right, ys.at(v))
		text(left-8, ys.at(v)+4, "end", "", short(v))
	}
	fmt.Fprintf(&b, `<path class="axis" fill="none" d="M%d %dV%dH%d"/>`+"\n", left, above, height-low, width-right)
	text((left+width-right)/2, height-18, "middle", "", p.x)
	fmt.Fprintf(&b, `<text transform="translate(20 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (above+height-low)/2, html.EscapeString(p.y))
	labels := labelPlaces(p, ys)
	for i, l := range p.lines {
		colour := colours[i%len(colours)]
		var d strings.Builder
		for j, pt := range l.points {
			letter := 'L'
			if j == 0 {
				letter = 'M'
			}
			fmt.Fprintf(&d, "%c%.1f %.1f", letter, xs.at(float64(pt.x)), ys.at(pt.ns))
		}
		fmt.Fprintf(&b, `<path fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s" d="%s"/>`+"\n", colour, dashes[i%len(dashes)], d.String())
		for _, pt := range l.points {
			mark(&b, i, xs.at(float64(pt.x)), ys.at(pt.ns), colour, fmt.Sprintf("%s: %s ns at %d", l.name, short(pt.ns), pt.x))
		}
		mark(&b, i, width-right+14, labels[i]-4, colour, l.name)
		text(width-right+24, labels[i], "start", "", l.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func axes(p *plot) (xs, ys axis) {
	least, most, widest := math.Inf(1), 0.0, 1
	for _, l := range p.lines {
		for _, pt := range l.points {
			least, most, widest = min(least, pt.ns), max(most, pt.ns), max(widest, pt.x)
		}
	}
	xs = axis{0, math.Log10(float64(widest)), left, width - right}
	if smallest(p) == 0 {
		xs.from = -1. / 3
	}
	ys = axis{math.Floor(math.Log10(least)), math.Ceil(math.Log10(most)), height - low, above}
	return xs, ys
}

func smallest(p *plot) int {
	least := math.MaxInt
	for _, l := range p.lines {
		for _, pt := range l.points {
			least = min(least, pt.x)
		}
	}
	return least
}

// ticks are powers of ten, and 2 and 5 times those where there is room: on an
// axis of at most so many decades.
func ticks(x axis, roomy float64) (list []float64) {
	within := []float64{1}
	if x.to-x.from <= max(roomy, 1.5) {
		within = []float64{1, 2, 5}
	}
	for power := math.Floor(x.from); power <= x.to; power++ {
		for _, n := range within {
			if v := n * math.Pow(10, power); v >= math.Pow(10, max(x.from, 0))*0.999 && v <= math.Pow(10, x.to)*1.001 {
				list = append(list, v)
			}
		}
	}
	return list
}

// labelPlaces puts each name beside its line's end, and apart from the others.
func labelPlaces(p *plot, ys axis) []float64 {
	const apart = 18
	places := make([]float64, len(p.lines))
	for i, l := range p.lines {
		places[i] = ys.at(l.points[len(l.points)-1].ns) + 4
	}
	for range places { // a few sweeps are enough for a handful of lines
		for i := range places {
			for j := range places {
				if gap := places[j] - places[i]; i != j && gap >= 0 && gap < apart {
					places[j], places[i] = places[j]+(apart-gap)/2, places[i]-(apart-gap)/2
				}
			}
		}
	}
	return places
}

// mark draws the i-th kind of mark, with a tooltip.
func mark(b *strings.Builder, i int, x, y float64, colour, tip string) {
	shape := ""
	switch i % 5 {
	case 0:
		shape = fmt.Sprintf(`<circle cx="%.1f" cy="%.1f" r="4"`, x, y)
	case 1:
		shape = fmt.Sprintf(`<rect x="%.1f" y="%.1f" width="7" height="7"`, x-3.5, y-3.5)
	case 2:
		shape = fmt.Sprintf(`<path d="M%.1f %.1fl4.5 8h-9z"`, x, y-5)
	case 3:
		shape = fmt.Sprintf(`<path d="M%.1f %.1fl5 5l-5 5l-5-5z"`, x, y-5)
	default:
		shape = fmt.Sprintf(`<path d="M%.1f %.1fl4.5-8h-9z"`, x, y+5)
	}
	fmt.Fprintf(b, `%s fill="%s"><title>%s</title>%s`+"\n", shape, colour, html.EscapeString(tip), closing(shape))
}

func closing(shape string) string {
	name, _, _ := strings.Cut(shape[1:], " ")
	return "</" + name + ">"
}

// short is a number as an axis shows it.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 3, 64) + " M"
	case v >= 1e3:
		return strconv.FormatFloat(v/1e3, 'g', 3, 64) + " k"
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}
