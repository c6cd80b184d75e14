// What geminictl plan --parallel prints. Pure: values in, text out.
#ifndef GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_PARALLEL_VIEW_H_
#define GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_PARALLEL_VIEW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/geminictl/output/style.h"
#include "training/meshes/choose.h"
#include "training/meshes/compare.h"

namespace geminid::ctl {

struct ParallelAnswer {
  forecast::Model model;
  forecast::Job job;
  bool host_is_given = true;
  std::vector<std::string> notes;
  std::optional<parallel::MeshSpec> only = std::nullopt;  // the mesh that was asked for
  parallel::Choice choice = {};
  std::optional<parallel::PlannedMesh> nearest = std::nullopt;  // if `only` does not fit
};

// The most rows of the table; further plans are only counted.
inline constexpr std::size_t kRowsShown = 24;

std::string ParallelText(const ParallelAnswer& answer, const Style& style);

struct ComparedAnswer {
  forecast::Model model;
  forecast::Job job;
  std::uint32_t ranks_per_node = 1;
  std::vector<std::string> notes;
  std::vector<parallel::ComparedGrid> grids = {};
};

std::string ComparedText(const ComparedAnswer& answer, const Style& style);

// "kept", "recomputed" or "offloaded".
const char* ActivationsName(forecast::Activations activations);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_PARALLEL_VIEW_H_
