#!/bin/sh
# Extracts the picture for README.md from a page written by `grosso lab`: the first plot, with the page's style.
#
#   docs/picture.sh grosso-lab.html > docs/lab.svg
set -eu
awk '
    /^<style>/ { in_style = 1 }
    in_style { style = style $0 "\n" }
    /^<\/style>/ { in_style = 0 }
    /<svg / {
        sub(/.*<svg /, "<svg xmlns=\"http://www.w3.org/2000/svg\" font-family=\"system-ui, sans-serif\"\n  ")
        print $0 "\n" style "<rect width=\"100%\" height=\"100%\" style=\"fill: var(--paper)\"/>"
        in_plot = 1
        next
    }
    in_plot && sub(/<\/svg>.*/, "</svg>") { print; exit }
    in_plot
' "$1"
