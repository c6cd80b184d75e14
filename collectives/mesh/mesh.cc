#include "geminid/mesh.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace geminid::collectives {
namespace {

std::string Names(const std::vector<MeshAxis>& axes) {
  return absl::StrJoin(axes, " x ", [](std::string* out, const MeshAxis& axis) {
    absl::StrAppend(out, axis.name, "=", axis.size);
  });
}

absl::Status CheckAxes(const std::vector<MeshAxis>& axes) {
  if (axes.empty()) return absl::InvalidArgumentError("a mesh needs at least one axis");
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name.empty()) return absl::InvalidArgumentError("an axis of a mesh has no name");
    if (axes[i].size < 1) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "axis %s has size %d; an axis has at least 1 rank", axes[i].name, axes[i].size));
    }
    for (size_t j = 0; j < i; ++j) {
      if (axes[j].name != axes[i].name) continue;
      return absl::InvalidArgumentError(
          absl::StrFormat("a mesh has two axes %s; give each a name of its own", axes[i].name));
    }
  }
  return absl::OkStatus();
}

// The world sizes nearest to this one that the axes fit if a further axis takes the rest.
std::string NearestWorlds(int64_t ranks, int world_size) {
  const int64_t below = world_size / ranks * ranks;
  const int64_t above = below + ranks;
  if (below == 0) return absl::StrCat(above, " ranks");
  return absl::StrCat(below, below == ranks ? "" : " (with a further axis)", " or ", above,
                      " ranks (with a further axis)");
}

}  // namespace

absl::StatusOr<Mesh> Mesh::Make(std::vector<MeshAxis> axes, int world_size) {
  if (absl::Status status = CheckAxes(axes); !status.ok()) return status;
  int64_t ranks = 1;
  for (const MeshAxis& axis : axes) {
    ranks *= axis.size;
    if (ranks > INT32_MAX) {
      return absl::InvalidArgumentError(
          absl::StrCat("the mesh ", Names(axes), " has more ranks than any job"));
    }
  }
  if (ranks != world_size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the mesh %s has %d ranks and the job %d; it would fit %s", Names(axes),
                        ranks, world_size, NearestWorlds(ranks, world_size)));
  }
  return Mesh(std::move(axes), world_size);
}

Mesh::Mesh(std::vector<MeshAxis> axes, int world_size)
    : axes_(std::move(axes)), strides_(axes_.size(), 1), world_size_(world_size) {
  for (size_t i = axes_.size(); i-- > 1;) strides_[i - 1] = strides_[i] * axes_[i].size;
}

int Mesh::IndexOf(std::string_view axis) const {
  const auto found = std::find_if(axes_.begin(), axes_.end(), [&](const MeshAxis& candidate) {
    return candidate.name == axis;
  });
  return found == axes_.end() ? -1 : static_cast<int>(found - axes_.begin());
}

bool Mesh::Has(std::string_view axis) const { return IndexOf(axis) >= 0; }

int Mesh::SizeOf(std::string_view axis) const {
  const int index = IndexOf(axis);
  return index < 0 ? 1 : axes_[static_cast<size_t>(index)].size;
}

int Mesh::Coordinate(int rank, std::string_view axis) const {
  const int index = IndexOf(axis);
  if (index < 0) return 0;
  return rank / strides_[static_cast<size_t>(index)] % axes_[static_cast<size_t>(index)].size;
}

std::vector<int> Mesh::Group(int rank, std::initializer_list<std::string_view> along) const {
  // First the member at coordinate 0 of every named axis, then all the others relative to it.
  int first = rank;
  std::vector<size_t> moved;
  for (const std::string_view axis : along) {
    const int index = IndexOf(axis);
    if (index < 0) continue;
    moved.push_back(static_cast<size_t>(index));
  }
  std::sort(moved.begin(), moved.end());
  moved.erase(std::unique(moved.begin(), moved.end()), moved.end());
  for (const size_t axis : moved) first -= Coordinate(rank, axes_[axis].name) * strides_[axis];
  std::vector<int> ranks = {first};
  for (const size_t axis : moved) {
    std::vector<int> longer;
    for (const int member : ranks) {
      for (int c = 0; c < axes_[axis].size; ++c) longer.push_back(member + c * strides_[axis]);
    }
    ranks = std::move(longer);
  }
  return ranks;
}

absl::StatusOr<std::unique_ptr<Communicator>> Mesh::Connect(
    Communicator& world, std::initializer_list<std::string_view> along) const {
  if (world.WorldSize() != world_size_) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the mesh %s has %d ranks, and the communicator has %d", ToString(),
                        world_size_, world.WorldSize()));
  }
  std::string name = "mesh";
  for (const std::string_view axis : along) name.append(" ").append(axis);
  return world.Subset(name, Group(world.Rank(), along));
}

std::string Mesh::ToString() const { return Names(axes_); }

}  // namespace geminid::collectives
