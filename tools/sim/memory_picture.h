// Device memory over one iteration, by owner, as a picture.
#ifndef GEMINID_TOOLS_SIM_MEMORY_PICTURE_H_
#define GEMINID_TOOLS_SIM_MEMORY_PICTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/sim/observer.h"

namespace geminid::sim {

struct MemoryPicture {
  std::string title;                 // any text
  uint64_t arena_bytes = 0;          // drawn as a line
  std::vector<DeviceBytes> moments;  // in order
};

// A stand-alone SVG of 720 x 320 that reads on light and on dark pages. Each moment is a column of
// one rectangle per owner, whose title says the bytes: "moment 3 weights 1048576".
std::string ToSvg(const MemoryPicture& picture);

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_MEMORY_PICTURE_H_
