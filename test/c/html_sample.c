/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes an html page of a made-up profile, for the browser tests:
 * html_sample NAME FILE [METRIC]
 */
#include "sample_profiles.h"
#include "view.h"

extern const struct ember_view ember_view_html;

static enum ember_metric metric_named(const char *name)
{
    if (strcmp(name, "words") == 0)
        return EMBER_METRIC_WORDS;
    return strcmp(name, "calls") == 0 ? EMBER_METRIC_CALLS : EMBER_METRIC_OWN_TIME;
}

static int write_page(const char *path, enum ember_metric metric)
{
    struct ember_sink sink;
    ember_sink_init(&sink);
    ember_view_html.write(&profile, &(struct ember_view_options){metric}, &sink);
    FILE *file = fopen(path, "wb");
    int written = file && !sink.failed && fwrite(sink.data, 1, sink.size, file) == sink.size;
    if (file && fclose(file) != 0)
        written = 0;
    ember_sink_fini(&sink);
    return written;
}

int main(int argc, char **argv)
{
    if (argc < 3 || !sample_make(argv[1])) {
        fputs("usage: html_sample small|merge|trouble|hostile|empty|deep|medium|large FILE [METRIC]\n",
              stderr);
        return 2;
    }
    int written = write_page(argv[2], metric_named(argc > 3 ? argv[3] : "time"));
    sample_free();
    return written ? 0 : 1;
}
