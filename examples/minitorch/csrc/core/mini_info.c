/* Prints the version of the installed library: a wheel's executable that needs a library of the wheel. */
#include <stdio.h>

#include <minitorch/c10.h>

int main(void) {
  const float a[4] = {1, 2, 3, 4}, unit[4] = {1, 0, 0, 1};
  float out[4];
  mini_matmul(a, unit, out, 2, 2, 2);
  if (out[0] != 1 || out[3] != 4) return 1;
  puts(mini_version());
  return 0;
}
