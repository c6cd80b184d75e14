#include "training/data/token_source.h"

#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "training/data/sampling.h"

namespace geminid::trainer {
namespace {

std::string SequenceTakes(const TokenRange& range, uint64_t context) {
  if (range.source->images() != nullptr) {
    return absl::StrCat(range.tokens, " images, but a run needs at least one");
  }
  const std::string unit = range.source->unit();
  return absl::StrCat(range.tokens, " ", unit, ", but one sequence takes ", context + 1,
                      " (the context and the ", unit.substr(0, unit.size() - 1), " after it)");
}

// "give --context 99 or less, or ", if any fits; the caller names more remedies.
std::string ContextThatFits(const TokenRange& range) {
  const uint64_t tokens = range.tokens;
  return tokens < 2 || range.source->images() != nullptr
             ? "give "
             : absl::StrCat("give --context ", tokens - 1, " or less, or ");
}

}  // namespace

std::string Describe(const DataListing& listing) {
  constexpr size_t kNamed = 8;
  uint64_t bytes = 0;
  std::string names;
  for (size_t i = 0; i < listing.files.size(); ++i) {
    const DataFile& file = listing.files[i];
    bytes += file.bytes;
    if (i >= kNamed) continue;
    absl::StrAppend(&names, i == 0 ? "" : ", ", base::Printable(file.path), " ", file.bytes);
  }
  const size_t files = listing.files.size();
  if (files > kNamed) absl::StrAppend(&names, " and ", files - kNamed, " more");
  return absl::StrCat(files, files == 1 ? " file, " : " files, ", bytes, " bytes: ", names);
}

std::string FirstDifference(const DataListing& was, const DataListing& is) {
  std::map<std::string, uint64_t> before;
  for (const DataFile& file : was.files) before[file.path] = file.bytes;
  for (const DataFile& file : is.files) {
    const std::string name = absl::StrCat("'", base::Printable(file.path), "'");
    const auto found = before.find(file.path);
    if (found == before.end()) return absl::StrCat(name, " is new");
    if (found->second != file.bytes) {
      return absl::StrCat(name, " has ", file.bytes, " bytes and had ", found->second);
    }
    before.erase(found);
  }
  return before.empty()
             ? ""
             : absl::StrCat("'", base::Printable(before.begin()->first), "' is no longer there");
}

uint64_t SamplesIn(const TokenRange& range, uint64_t context) {
  return range.source->images() != nullptr ? range.tokens : WindowsIn(range.tokens, context);
}

absl::Status CheckLength(const TokenRange& range, uint64_t context) {
  if (SamplesIn(range, context) > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the data has ", SequenceTakes(range, context),
                                                 "; ", ContextThatFits(range), "more data"));
}

absl::Status AppendSequence(const TokenRange& range, uint64_t start, uint64_t count,
                            std::vector<int32_t>* tokens, std::vector<int32_t>* targets) {
  const size_t old = tokens->size();
  tokens->resize(old + count + 1);
  GEMINID_RETURN_IF_ERROR(range.source->Read(range.first + start, std::span(*tokens).subspan(old)));
  targets->insert(targets->end(), tokens->begin() + static_cast<ptrdiff_t>(old) + 1, tokens->end());
  tokens->pop_back();
  return absl::OkStatus();
}

absl::StatusOr<Split> SplitTokens(const TokenSource& source, double share, uint64_t context) {
  GEMINID_RETURN_IF_ERROR(CheckLength(TokenRange::All(source), context));
  const auto held =
      static_cast<uint64_t>(std::llround(share * static_cast<double>(source.tokens())));
  const Split split = {.training = {&source, 0, source.tokens() - held},
                       .held_out = {&source, source.tokens() - held, held}};
  if (share == 0) return split;
  for (const TokenRange& part : {split.training, split.held_out}) {
    if (SamplesIn(part, context) > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--validation ", share, " leaves ", part.first == 0 ? "training " : "validation ",
        SequenceTakes(part, context), "; ", ContextThatFits(part), "more data, or a ",
        part.first == 0 ? "smaller" : "larger", " share"));
  }
  return split;
}

}  // namespace geminid::trainer
