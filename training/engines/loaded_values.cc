#include "training/engines/loaded_values.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "client/checkpoint/contents.h"
#include "client/checkpoint/newest.h"
#include "client/checkpoint/tensor_set.h"
#include "geminid/checkpoint.h"
#include "training/models/fine_tuning.h"
#include "training/models/huggingface.h"

namespace geminid::trainer {
namespace {

using checkpoint::TensorSet;

constexpr char kHead[] = "lm_head.weight";
constexpr char kHeadOfGptNeox[] = "embed_out.weight";
constexpr char kClassifier[] = "classifier.weight";
constexpr char kClassifierPrefix[] = "classifier.";
constexpr char kHeadOfBert[] = "cls.predictions.decoder.weight";
constexpr char kBiasOfBert[] = "cls.predictions.bias";
constexpr char kSecondBiasOfBert[] = "cls.predictions.decoder.bias";  // the same once more
// In the oldest files of BERT gains and shifts have names of their own.
constexpr std::pair<std::string_view, std::string_view> kOldNorms[] = {
    {"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}};
constexpr uint64_t kBlockElements = uint64_t{1} << 20;

// The number of the layer that a tensor belongs to; -1: of none.
int64_t LayerOf(const std::string& tensor) {
  std::string before;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(tensor, '.'))) {
    uint64_t layer = 0;
    if ((before == "h" || before == "layer" || before == "layers") &&
        absl::SimpleAtoi(word, &layer)) {
      return static_cast<int64_t>(layer);
    }
    before = word;
  }
  return -1;
}

// What the folder calls the parameters.
class Names {
 public:
  Names(const ModelConfig& model, const std::map<std::string, std::string>& file_of) {
    const std::string_view prefix = LanguageModelPrefix(model.family);
    const bool has_prefix = std::any_of(file_of.begin(), file_of.end(), [&](const auto& entry) {
      return entry.first.starts_with(prefix);
    });
    // Files of the base model, as OpenAI's GPT-2 has them, leave out what the language model's add.
    if (!has_prefix) left_out_ = prefix;
    has_adapters_ = std::any_of(file_of.begin(), file_of.end(),
                                [](const auto& entry) { return IsAdapter(entry.first); });
    // Newer versions of transformers call that of GPT-NeoX kHead, though not in the files they
    // save.
    const bool has_usual = file_of.contains(kHead) && !file_of.contains(kHeadOfGptNeox);
    if (model.family == Family::kGptNeox && !has_usual) head_ = kHeadOfGptNeox;
    if (model.family != Family::kBert) return;
    head_ = kHeadOfBert;
    if (!file_of.contains(kBiasOfBert)) bias_of_bert_ = kSecondBiasOfBert;
    old_norms_ = std::any_of(file_of.begin(), file_of.end(), [](const auto& entry) {
      return entry.first.ends_with(kOldNorms[0].second);
    });
  }

  // The folder's output layer, where it has one.
  const char* head() const { return head_; }

  std::string Of(const zero::Parameter& parameter) const {
    if (IsAdapter(parameter) && !has_adapters_) return "";
    if (parameter.name == kHeadOfGptNeox) return head_;
    if (parameter.name == kBiasOfBert) return bias_of_bert_;
    std::string name = parameter.name;
    if (name.starts_with(left_out_)) name.erase(0, left_out_.size());
    for (const auto& [today, then] : kOldNorms) {
      if (!old_norms_ || !name.ends_with(today)) continue;
      name.replace(name.size() - today.size(), today.size(), then);
      break;
    }
    return name;
  }

 private:
  std::string_view left_out_;
  bool has_adapters_ = false;
  const char* head_ = kHead;
  const char* bias_of_bert_ = kBiasOfBert;
  bool old_norms_ = false;
};

// Whether the output layer of a folder is its token table once more.
absl::StatusOr<bool> AreEqual(const TensorSet& set, const std::string& head,
                              const std::string& table) {
  GEMINID_ASSIGN_OR_RETURN(const TensorSet::Found a, set.Find(head));
  GEMINID_ASSIGN_OR_RETURN(const TensorSet::Found b, set.Find(table));
  if (a.tensor->shape != b.tensor->shape) return false;
  std::vector<float> of_a, of_b;
  const uint64_t elements = a.tensor->elements();
  for (uint64_t at = 0; at < elements; at += kBlockElements) {
    of_a.resize(std::min(kBlockElements, elements - at));
    of_b.resize(of_a.size());
    GEMINID_RETURN_IF_ERROR(a.file->ReadFloats(*a.tensor, at, of_a));
    GEMINID_RETURN_IF_ERROR(b.file->ReadFloats(*b.tensor, at, of_b));
    if (std::memcmp(of_a.data(), of_b.data(), of_a.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

absl::Status CheckHead(const TensorSet& set, const std::string& folder, const char* head,
                       const std::string& table) {
  GEMINID_ASSIGN_OR_RETURN(const bool are_equal, AreEqual(set, head, table));
  if (are_equal) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "'", folder, "' has an output layer '", head, "' that differs from '", table,
      "', but the model has one table for both; set \"tie_word_embeddings\" to false in its "
      "config.json, or remove the tensor"));
}

// Whether a layer computes with a tensor by its name and shape. Masks that older files store as
// 'attn.bias' have more dimensions than a bias.
bool IsOfALayer(const std::string& name, const checkpoint::TensorEntry& tensor) {
  if (LayerOf(name) < 0) return false;
  return name.ends_with(".weight") || (name.ends_with(".bias") && tensor.shape.size() == 1);
}

// An adapter of PEFT beside the weights is part of the model that the folder's user has.
absl::Status CheckNoAdapterBeside(const std::string& folder) {
  constexpr char kAdapter[] = "adapter_config.json";
  if (::access(absl::StrCat(folder, "/", kAdapter).c_str(), F_OK) != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", folder, "' has an adapter of PEFT ('", kAdapter,
                   "'), which geminid-train does not read; merge it with PEFT's merge_and_unload() "
                   "and save_pretrained(), or "
                   "move its files out of the folder"));
}

// Whether the classifier begins at random: where --classes gives another number than the folder
// has, or the folder has none.
absl::StatusOr<bool> BeginsClassifier(const TensorSet& set, const std::string& folder,
                                      const TrainOptions& options) {
  if (!options.model.classifies() || options.eval_only) return false;
  const bool is_given = std::ranges::find(options.given, "--classes") != options.given.end();
  if (set.file_of().contains(kClassifier)) {
    GEMINID_ASSIGN_OR_RETURN(const TensorSet::Found found, set.Find(kClassifier));
    return is_given && found.tensor->shape.front() != options.model.classes;
  }
  if (is_given) return true;
  return absl::InvalidArgumentError(
      absl::StrCat("'", folder, "' has no classifier ('", kClassifier,
                   "'); give --classes the number of labels to begin with a random classifier"));
}

// Tensors that no parameter asks for, such as buffers, are passed over; trained ones are refused.
absl::Status CheckNothingIsLeftOut(const TensorSet& set, const std::string& folder,
                                   const ModelConfig& model, const std::set<std::string>& asked) {
  for (const auto& [name, file] : set.file_of()) {
    if (asked.contains(name)) continue;
    if (IsAdapter(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", folder, "' has the adapter '", name,
                       "', which the model has no place for; give --lora-rank its rank"));
    }
    if (const int64_t layer = LayerOf(name); layer >= static_cast<int64_t>(model.layers)) {
      return absl::InvalidArgumentError(absl::StrCat("'", folder, "' has '", name, "' of layer ",
                                                     layer, "; the model has ", model.layers,
                                                     " layers. Give --layers what the folder has"));
    }
    GEMINID_ASSIGN_OR_RETURN(const TensorSet::Found found, set.Find(name));
    if (IsOfALayer(name, *found.tensor)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", folder, "' has '", name,
          "', for which the model of its config.json has no place, so that it would be left out; "
          "correct config.json (such as \"attention_bias\" or \"model_type\"), or remove the "
          "tensor"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadModelValues(const TrainOptions& options, zero::ModelState* state,
                             const std::vector<zero::Parameter>& parameters) {
  GEMINID_ASSIGN_OR_RETURN(const std::string folder, checkpoint::FolderOfValues(options.load));
  GEMINID_RETURN_IF_ERROR(CheckNoAdapterBeside(folder));
  GEMINID_ASSIGN_OR_RETURN(const TensorSet set, TensorSet::Open(folder, checkpoint::kModelPrefix));
  const Names names(options.model, set.file_of());
  std::set<std::string> asked;
  for (const zero::Parameter& parameter : parameters) asked.insert(names.Of(parameter));
  GEMINID_RETURN_IF_ERROR(CheckNothingIsLeftOut(set, folder, options.model, asked));
  if (set.file_of().contains(names.head()) && !asked.contains(names.head())) {
    GEMINID_RETURN_IF_ERROR(CheckHead(set, folder, names.head(), names.Of(parameters.front())));
  }
  GEMINID_ASSIGN_OR_RETURN(const bool begins, BeginsClassifier(set, folder, options));
  return checkpoint::LoadValues(folder, state, parameters, [&](const zero::Parameter& parameter) {
    const bool begins_here = begins && parameter.name.starts_with(kClassifierPrefix);
    return begins_here ? std::string() : names.Of(parameter);
  });
}

absl::StatusOr<std::string> RemarkOfFrozen(const TrainOptions& options,
                                           const std::vector<zero::Parameter>& parameters) {
  GEMINID_ASSIGN_OR_RETURN(const std::string folder, checkpoint::FolderOfValues(options.load));
  GEMINID_ASSIGN_OR_RETURN(const TensorSet set, TensorSet::Open(folder, checkpoint::kModelPrefix));
  const Names names(options.model, set.file_of());
  std::string first;
  size_t count = 0;
  for (const zero::Parameter& parameter : parameters) {
    const zero::DataType held = parameter.data_type.value_or(options.zero.data_type);
    if (parameter.trainable || held != zero::DataType::kBFloat16) continue;
    const absl::StatusOr<TensorSet::Found> found = set.Find(names.Of(parameter));
    if (!found.ok() || found->tensor->type == checkpoint::ElementType::kBFloat16) continue;
    if (count++ == 0) first = parameter.name;
  }
  if (count == 0) return std::string();
  return absl::StrCat(
      "frozen weights are stored in bf16: ", count, " of them, such as '", first,
      "', have more bits in '", folder,
      "', and --save and --export will lack those bits; give --dtype fp32 to keep them");
}

}  // namespace geminid::trainer
