#include "client/zero/update/tensor_runs.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace geminid::zero {
namespace {

uint64_t ElementsOf(const Parameter& parameter) {
  uint64_t elements = 1;
  for (const int64_t size : parameter.shape) elements *= static_cast<uint64_t>(size);
  return elements;
}

std::optional<uint32_t> Named(const std::string& name, const std::vector<Parameter>& model) {
  const auto found = std::ranges::find(model, name, &Parameter::name);
  if (found == model.end()) return std::nullopt;
  return static_cast<uint32_t>(found - model.begin());
}

// Whether the piece's rows, `stride` apart from `first` on, lie within so many elements.
bool Within(uint64_t elements, const TensorPiece& piece, uint64_t first, uint64_t stride) {
  uint64_t count = 0, last_row = 0, end = 0;
  return !__builtin_mul_overflow(piece.rows, piece.columns, &count) && count <= elements &&
         !__builtin_mul_overflow(piece.rows - 1, stride, &last_row) &&
         !__builtin_add_overflow(last_row, first, &end) &&
         !__builtin_add_overflow(end, piece.columns, &end) && end <= elements;
}

absl::Status CheckPiece(const Parameter& parameter, const TensorPiece& piece,
                        const std::vector<Parameter>& model) {
  const auto bad = [&](const std::string& words) {
    return absl::InvalidArgumentError(
        absl::StrCat("a piece of parameter '", parameter.name, "' ", words));
  };
  if (piece.tensor >= model.size()) {
    return bad(absl::StrCat("is of tensor ", piece.tensor, "; Options::model has ", model.size()));
  }
  const Parameter& tensor = model[piece.tensor];
  if (piece.rows == 0 || piece.columns == 0) return bad("has no elements");
  if (!Within(ElementsOf(tensor), piece, piece.tensor_first, piece.tensor_stride)) {
    return bad(absl::StrCat("is not within '", tensor.name, "'"));
  }
  if (!Within(ElementsOf(parameter), piece, piece.first, piece.stride)) {
    return bad("is not within it");
  }
  if (parameter.trainable && !tensor.trainable) {
    return bad(absl::StrCat("is trained, and '", tensor.name, "' is not"));
  }
  return absl::OkStatus();
}

// The whole tensor as one piece.
TensorPiece WholeOf(uint32_t tensor, uint64_t elements) {
  return {.tensor = tensor, .columns = elements};
}

std::vector<TensorPiece> PiecesOf(const Parameter& parameter, uint32_t id,
                                  const std::vector<Parameter>& model) {
  const uint64_t elements = ElementsOf(parameter);
  if (model.empty()) return {WholeOf(id, elements)};
  return parameter.pieces.has_value()
             ? *parameter.pieces
             : std::vector{WholeOf(*Named(parameter.name, model), elements)};
}

// Checks a parameter that has no pieces.
absl::Status CheckWhole(const Parameter& parameter, const std::vector<Parameter>& model) {
  const std::optional<uint32_t> tensor = Named(parameter.name, model);
  if (!tensor.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", parameter.name,
                     "' has no pieces, and no tensor of Options::model has its name"));
  }
  if (ElementsOf(model[*tensor]) == ElementsOf(parameter)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parameter '", parameter.name, "' has ", ElementsOf(parameter),
                   " elements, and the tensor of its name in Options::model ",
                   ElementsOf(model[*tensor]), "; say which it has with Parameter::pieces"));
}

// Joins runs that continue each other both in the tensor and in the parameter.
std::vector<TensorRun> Joined(const std::vector<TensorRun>& runs) {
  std::vector<TensorRun> joined;
  for (const TensorRun& run : runs) {
    if (!joined.empty()) {
      TensorRun& last = joined.back();
      const bool goes_on = last.tensor == run.tensor &&
                           last.tensor_offset + last.elements == run.tensor_offset &&
                           last.offset + last.elements == run.offset;
      if (goes_on) {
        last.elements += run.elements;
        continue;
      }
    }
    joined.push_back(run);
  }
  return joined;
}

}  // namespace

std::vector<TensorRun> RunsOf(const Parameter& parameter, uint32_t id,
                              const std::vector<Parameter>& model) {
  std::vector<TensorRun> runs;
  for (const TensorPiece& piece : PiecesOf(parameter, id, model)) {
    for (uint64_t row = 0; row < piece.rows; ++row) {
      runs.push_back({.tensor = piece.tensor,
                      .tensor_offset = piece.tensor_first + row * piece.tensor_stride,
                      .offset = piece.first + row * piece.stride,
                      .elements = piece.columns});
    }
  }
  std::ranges::sort(runs, {}, &TensorRun::offset);
  return Joined(runs);
}

absl::Status CheckPieces(const std::vector<Parameter>& parameters,
                         const std::vector<Parameter>& model) {
  if (model.empty()) return absl::OkStatus();
  for (const Parameter& tensor : model) {
    if (std::ranges::all_of(tensor.shape, [](int64_t size) { return size > 0; })) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", tensor.name, "' of Options::model has no elements"));
  }
  for (const Parameter& parameter : parameters) {
    if (!parameter.pieces.has_value()) GEMINID_RETURN_IF_ERROR(CheckWhole(parameter, model));
    for (const TensorPiece& piece : PiecesOf(parameter, /*id=*/0, model)) {
      GEMINID_RETURN_IF_ERROR(CheckPiece(parameter, piece, model));
    }
    const std::vector<TensorRun> runs = RunsOf(parameter, /*id=*/0, model);
    for (size_t i = 1; i < runs.size(); ++i) {
      if (runs[i - 1].offset + runs[i - 1].elements <= runs[i].offset) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("pieces of parameter '", parameter.name, "' overlap"));
    }
  }
  return absl::OkStatus();
}

}  // namespace geminid::zero
