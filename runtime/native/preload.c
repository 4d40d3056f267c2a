#include "raddle.h"
