package main

import (
	"fmt"
	"os"
	"strings"
)

// rewrite puts sections into a file, each between the lines
//
//	<!-- begin NAME -->
//	<!-- end NAME -->
//
// and leaves everything else, and sections that it has no new text for, as they
// are.
func rewrite(path string, sections map[string]string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(data)
	for name, section := range sections {
		if text, err = replace(text, name, section); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

func replace(text, name, section string) (string, error) {
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	before, rest, ok := strings.Cut(text, begin)
	if !ok {
		return "", fmt.Errorf("there is no line %q", strings.TrimSpace(begin))
	}
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("there is no line %q", end)
	}
	return before + begin + "\n" + strings.TrimSpace(section) + "\n\n" + end + after, nil
}
