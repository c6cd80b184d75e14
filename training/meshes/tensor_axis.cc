#include "training/meshes/tensor_axis.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "training/meshes/axes.h"

namespace geminid::parallel {
namespace {

using collectives::TensorGrid;
using collectives::TensorMode;

constexpr auto Refuse = RefuseParallel;

absl::StatusOr<TensorMode> ModeOf(const std::string& name) {
  std::vector<std::string> names;
  for (const TensorMode mode : {TensorMode::k1D, TensorMode::k1DSequence, TensorMode::k2D,
                                TensorMode::k25D, TensorMode::k3D}) {
    names.push_back(collectives::Name(mode));
    if (name == names.back()) return mode;
  }
  return Refuse(absl::StrCat("tensor has no mode '", name, "'; the modes are ",
                             absl::StrJoin(names, ", "), ", as in tensor=2d:size=4"));
}

}  // namespace

absl::StatusOr<TensorAxis> ReadTensor(const std::string& value, int most) {
  TensorAxis axis;
  const std::vector<std::string> pieces = absl::StrSplit(value, ':');
  GEMINID_ASSIGN_OR_RETURN(axis.mode, ModeOf(pieces[0]));
  bool sized = false;
  for (std::size_t i = 1; i < pieces.size(); ++i) {
    const std::vector<std::string> sides = absl::StrSplit(pieces[i], absl::MaxSplits('=', 1));
    if (sides.size() == 1 || sides[0] == "size") {
      if (sized) return Refuse("tensor's size appears twice; give it once");
      GEMINID_ASSIGN_OR_RETURN(axis.size, ReadSize("tensor's size", sides.back(), most));
      sized = true;
    } else if (sides[0] == "depth") {
      GEMINID_ASSIGN_OR_RETURN(axis.depth, ReadSize("tensor's depth", sides[1], most));
    } else {
      return Refuse(absl::StrCat("tensor has no '", sides[0], "'; it has a size and a depth"));
    }
  }
  if (!sized) return Refuse("tensor needs a size, as in tensor=2.5d:size=8:depth=2");
  const absl::Status grid = TensorGrid::Make(axis.mode, axis.size, axis.depth).status();
  if (grid.ok()) return axis;
  const bool lacks_depth = axis.mode == TensorMode::k25D && axis.depth == 1;
  return Refuse(absl::StrCat(
      std::string(grid.message()),
      lacks_depth ? "; or give a depth, as in tensor=2.5d:size=8:depth=2: the default is 1" : ""));
}

}  // namespace geminid::parallel
