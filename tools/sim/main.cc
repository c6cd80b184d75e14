// geminid-sim: training in simulated time.
#include <iostream>

#include "tools/sim/run.h"

int main(int argc, char** argv) {
  return geminid::sim::RunGeminidSim({argv + 1, argv + argc}, std::cout, std::cerr);
}
