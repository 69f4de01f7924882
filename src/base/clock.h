#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

/* Monotonic milliseconds from an arbitrary origin, nanosecond resolution. */
double clock_ms(void);

#endif
