// A grid of ranks with named axes: coordinates of ranks, and the groups that communicate.
//
//   auto mesh = Mesh::Make({{"pipeline", 2}, {"data", 2}, {"tensor", 4}}, 16);
//   std::vector<int> group = mesh->Group(rank, {"tensor"});  // the 4 ranks that differ only there
//
// Pure arithmetic, the same on every rank, so ranks agree without communication. Thread-safe.
#ifndef GEMINID_MESH_H_
#define GEMINID_MESH_H_

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "geminid/export.h"

namespace geminid::collectives {

struct MeshAxis {
  std::string name;
  int size = 1;
};

class GEMINID_EXPORT Mesh {
 public:
  // Axes from the outermost to the innermost: consecutive ranks differ in the last axis. Put the
  // axis with the most communication last, so that its groups lie within a node. INVALID_ARGUMENT:
  // no axes, a name that is empty or used twice, a size below 1, or sizes whose product is not
  // `world_size`. The message says which world sizes these axes would fit.
  static absl::StatusOr<Mesh> Make(std::vector<MeshAxis> axes, int world_size);

  int world_size() const { return world_size_; }
  const std::vector<MeshAxis>& axes() const { return axes_; }
  bool Has(std::string_view axis) const;
  // 1 for an axis that the mesh does not have.
  int SizeOf(std::string_view axis) const;

  // The rank's coordinate along an axis; 0 if the mesh lacks the axis. 0 <= rank < world_size().
  int Coordinate(int rank, std::string_view axis) const;

  // The ranks that differ from `rank` only along these axes, including `rank`, in ascending order.
  // With several axes the outermost varies slowest, whatever the order of their names.
  std::vector<int> Group(int rank, std::initializer_list<std::string_view> along) const;

  // The communicator of Group(): a subset of `world`, which has world_size() ranks. All ranks call
  // it for the same axes in the same order. Blocks until the group's ranks have come.
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(
      Communicator& world, std::initializer_list<std::string_view> along) const;

  // "pipeline=2 x data=2 x tensor=4".
  std::string ToString() const;

 private:
  Mesh(std::vector<MeshAxis> axes, int world_size);

  // The axis's index, or -1.
  int IndexOf(std::string_view axis) const;

  std::vector<MeshAxis> axes_;
  std::vector<int> strides_;  // by axis: ranks from one coordinate to the next
  int world_size_ = 1;
};

}  // namespace geminid::collectives

#endif  // GEMINID_MESH_H_
