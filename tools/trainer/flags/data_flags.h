// The flags that name the training data and the data held out for validation.
#ifndef GEMINID_TOOLS_TRAINER_FLAGS_DATA_FLAGS_H_
#define GEMINID_TOOLS_TRAINER_FLAGS_DATA_FLAGS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/trainer/flags/flags.h"
#include "training/data/token_source.h"
#include "training/settings/options.h"

namespace geminid::trainer {

void AddDataFlags(CLI::App* app, Flags* flags);

// INVALID_ARGUMENT unless text, shards or images are given, one of them alone.
absl::Status CheckDataPath(const Flags& flags);

// INVALID_ARGUMENT names the flag. `options` already has the model, whose vocabulary the data uses.
absl::Status ParseData(const Flags& flags, TrainOptions* options);

// Opens the text, the shards or the images. Errors are those of Text::Load, TokenShards::Open and
// Images::Open; `on_progress` is that of Text::Load.
absl::StatusOr<std::unique_ptr<TokenSource>> OpenData(const TrainOptions& options,
                                                      const OnBytesRead& on_progress = nullptr);

// FAILED_PRECONDITION names a file that is new, gone or of another size since `read` was listed.
absl::Status CheckSameFiles(const TrainOptions& options, const DataListing& read);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_DATA_FLAGS_H_
