/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a fuzz target, without a fuzzer, on the files named, or on the corpus of
 * the program's own name.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        exit(1);
    }
    size_t size = (size_t)ftell(file);
    uint8_t *data = malloc(size + 1);
    rewind(file);
    if (!data || fread(data, 1, size, file) != size) {
        perror(path);
        exit(1);
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
}

static int replay_corpus(const char *name)
{
    char path[4096];
    int count = 0;
    snprintf(path, sizeof path, "test/fuzz/corpus/%s", name);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "test/fuzz/corpus/%s/%s", name, entry->d_name);
        replay(path);
        count++;
    }
    if (directory)
        closedir(directory);
    return count;
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    int count = argc - 1;
    for (int i = 1; i < argc; i++)
        replay(argv[i]);
    if (argc == 1)
        count = replay_corpus(slash ? slash + 1 : argv[0]);
    printf("%d inputs\n", count);
    return count > 0 ? 0 : 1;
}
