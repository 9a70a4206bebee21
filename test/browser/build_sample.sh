#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds build/html_sample, which writes the pages that the browser tests open.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p build
page=build/view_html_page.h
{
    echo 'static const unsigned char ember_html_page[] = {'
    od -An -v -tu1 c_src/view_html.html | sed 's/[0-9][0-9]*/&,/g'
    echo '};'
    echo 'static const size_t ember_html_page_size = sizeof ember_html_page;'
} > "$page.new"
mv "$page.new" "$page"
${CC:-cc} -std=c11 -O2 -Wall -Wextra -Wstrict-prototypes -Wmissing-prototypes -Wshadow \
    -Wconversion -Wvla -Werror -Ic_src -Ibuild -o build/html_sample \
    test/c/html_sample.c c_src/view_html.c c_src/sink.c
