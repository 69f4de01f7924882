#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

/* Return monotonic milliseconds since an arbitrary time, with a resolution of
 * nanoseconds. */
double clock_ms(void);

#endif
