#include "training/data/images.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "training/data/data_files.h"
#include "training/data/in_blocks.h"

namespace geminid::trainer {
namespace {

using checkpoint::ElementType;
using checkpoint::TensorEntry;
using checkpoint::TensorFile;

constexpr DataWords kWords = {
    .flag = "--images", .what = "image file", .files = "safetensors files of images and labels"};
constexpr char kImages[] = "images";
constexpr char kLabels[] = "labels";
constexpr char kMean[] = "mean";
constexpr char kStd[] = "std";
constexpr float kUsualMoment = 0.5F;  // mean and deviation of the published models
constexpr uint64_t kBlockLabels = uint64_t{1} << 16;

absl::Status Bad(const std::string& path, const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat("the image file '", path, "' ", problem));
}

std::string ShapeText(const TensorEntry& tensor) {
  return absl::StrCat("[", absl::StrJoin(tensor.shape, ", "), "]");
}

absl::StatusOr<const TensorEntry*> FindTensor(const TensorFile& file, const char* name) {
  if (const TensorEntry* const tensor = file.header().Find(name)) return tensor;
  std::vector<std::string> names;
  for (const TensorEntry& tensor : file.header().tensors) {
    names.push_back(tensor.name);
    if (names.size() == 4) break;
  }
  return Bad(file.path(),
             absl::StrCat("has no tensor '", name, "'; it has '", absl::StrJoin(names, "', '"),
                          "'. Save both 'images' and 'labels'"));
}

absl::Status CheckChannels(const std::string& path, const TensorEntry& images,
                           const ImageShape& shape) {
  const std::string has = absl::StrCat("has 'images' of the shape ", ShapeText(images), ", of ");
  const uint64_t channels = images.shape[1];
  if (channels == shape.channels) return absl::OkStatus();
  constexpr uint64_t kChannelsMax = 4;  // of photographs
  if (images.shape[3] <= kChannelsMax && channels > kChannelsMax) {
    return Bad(path, absl::StrCat(has,
                                  "which the last seems to be the channels; save "
                                  "images.permute(0, 3, 1, 2).contiguous()"));
  }
  return Bad(path,
             absl::StrCat(has, channels, channels == 1 ? " channel" : " channels",
                          channels == 1 ? " as grayscale images have" : "", "; the model reads ",
                          shape.channels,
                          channels == 1 ? absl::StrCat(". Save images.expand(-1, ", shape.channels,
                                                       ", -1, -1).contiguous()")
                                        : absl::StrCat(". Save images[:, :", shape.channels, "]"),
                          ", or give --channels ", channels, " for a model of your own"));
}

absl::Status CheckImages(const std::string& path, const TensorEntry& images,
                         const ImageShape& shape) {
  if (images.type != ElementType::kUint8 && images.type != ElementType::kFloat32) {
    return Bad(path, absl::StrCat("has 'images' of dtype ", images.type_name(),
                                  "; U8 and F32 are read: save images.float()"));
  }
  if (images.shape.size() == 3) {
    return Bad(path, absl::StrCat("has 'images' of the shape ", ShapeText(images),
                                  ", without channels; save images.unsqueeze(1).expand(-1, ",
                                  shape.channels, ", -1, -1).contiguous()"));
  }
  if (images.shape.size() != 4) {
    return Bad(path, absl::StrCat("has 'images' of the shape ", ShapeText(images),
                                  "; it must be [n, channels, height, width]"));
  }
  if (images.shape[0] == 0) return Bad(path, "holds no images");
  GEMINID_RETURN_IF_ERROR(CheckChannels(path, images, shape));
  if (images.shape[2] == shape.side && images.shape[3] == shape.side) return absl::OkStatus();
  return Bad(path,
             absl::StrCat("has images of ", images.shape[2], " x ", images.shape[3],
                          " pixels, and the model reads ", shape.side, " x ", shape.side,
                          " (image_size); resize them, or give --image-size for a model of your "
                          "own: of a loaded one the learned positions are of its size alone"));
}

absl::Status CheckLabels(const std::string& path, const TensorEntry& labels, uint64_t images) {
  if (labels.type_name() != "I64") {
    return Bad(path, absl::StrCat("has 'labels' of dtype ", labels.type_name(),
                                  "; I64 is read: save labels.to(torch.int64)"));
  }
  if (labels.shape == std::vector<uint64_t>{images}) return absl::OkStatus();
  return Bad(path, absl::StrCat("has 'labels' of the shape ", ShapeText(labels), " for ", images,
                                " images; there must be a label for each: [", images, "]"));
}

// Of each channel, as the file says or as is usual.
absl::StatusOr<std::vector<float>> MomentsOf(const TensorFile& file, const char* name,
                                             uint64_t channels) {
  std::vector<float> moments(channels, kUsualMoment);
  const TensorEntry* const tensor = file.header().Find(name);
  if (tensor == nullptr) return moments;
  if (tensor->type != ElementType::kFloat32 || tensor->shape != std::vector<uint64_t>{channels}) {
    return Bad(file.path(), absl::StrCat("has '", name, "' of dtype ", tensor->type_name(),
                                         " and shape ", ShapeText(*tensor), "; it must be F32 [",
                                         channels, "], a number for each channel"));
  }
  GEMINID_RETURN_IF_ERROR(file.ReadFloats(*tensor, 0, moments));
  return moments;
}

// As (pixel / 255 - mean) / std in fp32.
absl::StatusOr<std::vector<std::array<float, 256>>> ValuesOf(const TensorFile& file,
                                                             uint64_t channels) {
  GEMINID_ASSIGN_OR_RETURN(const std::vector<float> mean, MomentsOf(file, kMean, channels));
  GEMINID_ASSIGN_OR_RETURN(const std::vector<float> std, MomentsOf(file, kStd, channels));
  std::vector<std::array<float, 256>> values(channels);
  for (uint64_t channel = 0; channel < channels; ++channel) {
    if (!(std[channel] > 0) || !std::isfinite(std[channel]) || !std::isfinite(mean[channel])) {
      return Bad(file.path(), absl::StrCat("has for channel ", channel, " the mean ", mean[channel],
                                           " and the std ", std[channel],
                                           "; they must be finite, and the std above 0"));
    }
    for (size_t pixel = 0; pixel < values[channel].size(); ++pixel) {
      values[channel][pixel] = (static_cast<float>(pixel) / 255.0F - mean[channel]) / std[channel];
    }
  }
  return values;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Images>> Images::Open(const std::vector<std::string>& paths,
                                                     const ImageShape& shape, uint64_t classes) {
  GEMINID_ASSIGN_OR_RETURN(DataPaths found, FindDataFiles(paths, kWords, kImageSuffix));
  std::unique_ptr<Images> images(new Images(shape, classes));
  images->listing_.left_out = std::move(found.left_out);
  for (const std::string& file : found.files) GEMINID_RETURN_IF_ERROR(images->Add(file));
  return images;
}

absl::Status Images::Add(const std::string& path) {
  absl::StatusOr<TensorFile> opened = TensorFile::OpenToRead(path);
  if (absl::IsDataLoss(opened.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the image file ", std::string(opened.status().message()),
                     "; it must be a safetensors file, as safetensors.torch.save_file writes it"));
  }
  if (!opened.ok()) return opened.status();
  File file = {.file = *std::move(opened), .first = labels_.size()};
  GEMINID_ASSIGN_OR_RETURN(const TensorEntry* const images, FindTensor(file.file, kImages));
  GEMINID_ASSIGN_OR_RETURN(const TensorEntry* const labels, FindTensor(file.file, kLabels));
  GEMINID_RETURN_IF_ERROR(CheckImages(path, *images, shape_));
  const uint64_t count = images->shape[0];
  GEMINID_RETURN_IF_ERROR(CheckLabels(path, *labels, count));
  file.begin = file.file.PlaceOf(*images, 0);
  file.image_bytes = images->bytes / count;
  if (images->type == ElementType::kUint8) {
    GEMINID_ASSIGN_OR_RETURN(file.values, ValuesOf(file.file, shape_.channels));
  }
  GEMINID_RETURN_IF_ERROR(AddLabels(file.file, *labels));
  listing_.files.push_back({path, file.file.file_bytes()});
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status Images::AddLabels(const TensorFile& file, const TensorEntry& labels) {
  const uint64_t count = labels.shape[0];
  const uint64_t begin = file.PlaceOf(labels, 0);
  std::vector<int64_t> block;
  for (uint64_t at = 0; at < count; at += block.size()) {
    block.resize(std::min(kBlockLabels, count - at));
    GEMINID_RETURN_IF_ERROR(
        file.Read(begin + at * sizeof(int64_t), std::as_writable_bytes(std::span(block))));
    for (size_t i = 0; i < block.size(); ++i) {
      if (block[i] < 0 || static_cast<uint64_t>(block[i]) >= classes_) {
        return Bad(file.path(),
                   absl::StrCat("has the label ", block[i], " at image ", at + i,
                                ", and the model has ", classes_, " classes, 0 to ", classes_ - 1,
                                "; give --classes the number of labels, or fix the label"));
      }
      labels_.push_back(static_cast<int32_t>(block[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status Images::Read(uint64_t first, std::span<int32_t> out) const {
  std::copy_n(labels_.begin() + static_cast<ptrdiff_t>(first), out.size(), out.begin());
  return absl::OkStatus();
}

const Images::File& Images::FileOf(uint64_t image) const {
  return *(std::upper_bound(files_.begin(), files_.end(), image,
                            [](uint64_t number, const File& f) { return number < f.first; }) -
           1);
}

absl::Status Images::ReadPixels(uint64_t image, std::span<std::byte> out) const {
  const File& file = FileOf(image);
  return file.file.Read(file.begin + (image - file.first) * file.image_bytes, out);
}

absl::Status Images::ReadPatches(uint64_t image, std::span<float> out) const {
  const File& file = FileOf(image);
  std::vector<std::byte> pixels(file.image_bytes);
  GEMINID_RETURN_IF_ERROR(ReadPixels(image, pixels));
  const uint64_t side = shape_.side, patch = shape_.patch, across = shape_.patches_per_side();
  std::vector<float> row(side);
  for (uint64_t channel = 0; channel < shape_.channels; ++channel) {
    for (uint64_t y = 0; y < across * patch; ++y) {
      const uint64_t at = (channel * side + y) * side;
      if (file.values.empty()) {
        std::memcpy(row.data(), pixels.data() + at * sizeof(float), side * sizeof(float));
      } else {
        for (uint64_t x = 0; x < side; ++x) {
          row[x] = file.values[channel][static_cast<uint8_t>(pixels[at + x])];
        }
      }
      const auto bad =
          std::find_if(row.begin(), row.end(), [](float v) { return !std::isfinite(v); });
      if (bad != row.end()) {
        return Bad(
            file.file.path(),
            absl::StrCat("has a pixel that is ", std::isnan(*bad) ? "NaN" : "infinite",
                         ", of image ", image - file.first, " at channel ", channel, ", row ", y,
                         ", column ", bad - row.begin(), "; fix the image, or leave it out"));
      }
      for (uint64_t p = 0; p < across; ++p) {
        const uint64_t to = ((y / patch * across + p) * shape_.channels + channel) * patch * patch +
                            y % patch * patch;
        std::copy_n(row.begin() + static_cast<ptrdiff_t>(p * patch), patch,
                    out.begin() + static_cast<ptrdiff_t>(to));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Images::CheckPixels(uint64_t first, uint64_t count) const {
  std::vector<float> patches(shape_.patches() * shape_.patch_elements());
  for (uint64_t image = first; image < first + count; ++image) {
    if (!FileOf(image).values.empty()) continue;  // all bytes are numbers
    GEMINID_RETURN_IF_ERROR(ReadPatches(image, patches));
  }
  return absl::OkStatus();
}

absl::Status Images::Check(const TokenCheck& how) const {
  constexpr uint64_t kBlock = 64;
  const uint64_t first = tokens() / how.parts * how.part;
  const uint64_t end = how.part + 1 == how.parts ? tokens() : tokens() / how.parts * (how.part + 1);
  const auto check = [this](uint64_t at, uint64_t count) { return CheckPixels(at, count); };
  return InBlocks({.first = first, .end = end, .threads = how.threads, .block = kBlock}, check,
                  how.on_progress);
}

}  // namespace geminid::trainer
