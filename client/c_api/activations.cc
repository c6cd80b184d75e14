// An engine's activation store.
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "client/c_api/arguments.h"
#include "client/c_api/engine_calls.h"
#include "client/c_api/objects.h"
#include "client/c_api/streams.h"
#include "geminid/activation_store.h"
#include "geminid/c_api.h"

using namespace geminid::c_api;  // below is the interface, outside of any namespace
using geminid::zero::ActivationStore;
using geminid::zero::ActivationStoreOptions;

void geminid_activation_store_options_init(geminid_activation_store_options* options,
                                           size_t struct_size) {
  const ActivationStoreOptions defaults;
  geminid_activation_store_options filled = {};
  filled.place_bytes = defaults.place_bytes;
  filled.places = defaults.places;
  Init(options, struct_size, filled);
}

geminid_code geminid_engine_make_activation_store(geminid_engine* engine,
                                                  const geminid_activation_store_options* options,
                                                  geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(const geminid_activation_store_options read, Read(options, "options"));
    GEMINID_ASSIGN_OR_RETURN(ActivationStore* const store,
                             MakeActivationStore(&object.engine(), {.place_bytes = read.place_bytes,
                                                                    .places = read.places}));
    object.SetActivations(store);
    return absl::OkStatus();
  });
}

geminid_code geminid_engine_save_activation(geminid_engine* engine, const void* from,
                                            uint64_t bytes, uint64_t stream, uint64_t* item,
                                            geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(from, "from"));
    GEMINID_RETURN_IF_ERROR(CheckGiven(item, "item"));
    GEMINID_ASSIGN_OR_RETURN(ActivationStore* const store, object.Activations());
    GEMINID_ASSIGN_OR_RETURN(
        *item, store->Save(static_cast<const std::byte*>(from), bytes, ToStream(stream)));
    return absl::OkStatus();
  });
}

geminid_code geminid_engine_load_activation(geminid_engine* engine, uint64_t item, void* to,
                                            uint64_t bytes, uint64_t stream, geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(to, "to"));
    GEMINID_ASSIGN_OR_RETURN(ActivationStore* const store, object.Activations());
    return store->Load(item, static_cast<std::byte*>(to), bytes, ToStream(stream));
  });
}

geminid_code geminid_engine_drop_activation(geminid_engine* engine, uint64_t item,
                                            geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(ActivationStore* const store, object.Activations());
    return store->Drop(item);
  });
}
