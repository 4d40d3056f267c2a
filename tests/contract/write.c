/* Writes a report's file where something may stand already, for test_native_contract.py: write PATH TEXT */
#include "report.c"

#include <stdio.h>
#include <string.h>

int main(int count, char **arguments)
{
    printf("%d\n", count == 3 && write_file(arguments[1], arguments[2], strlen(arguments[2])));
    return 0;
}
