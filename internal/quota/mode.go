package quota

import (
	"slices"
	"strconv"
)

// Mode says which responses carry the fields.
type Mode uint8

const (
	Off      Mode = iota // none
	Rejected             // refusals
	Always               // all
)

var modeWords = [...]string{"off", "rejected", "always"}

// ParseMode reads the word that [Mode.String] returns. There is no default: ok
// is false for the empty word too.
func ParseMode(word string) (m Mode, ok bool) {
	i := slices.Index(modeWords[:], word)
	return Mode(max(i, 0)), i >= 0
}

// String returns off, rejected or always.
func (m Mode) String() string {
	if int(m) < len(modeWords) {
		return modeWords[m]
	}
	return "mode(" + strconv.Itoa(int(m)) + ")"
}
