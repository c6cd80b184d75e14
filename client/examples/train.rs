//! The smallest trainer, in Rust by plain `extern "C"`: it pulls a matrix towards ones, as
//! minimal_trainer.cc does. The structs are those of geminid/c_api.h.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::mem::{size_of, zeroed};
use std::ptr::{null, null_mut};

#[repr(C)]
struct SessionOptions {
    struct_size: usize,
    texts: [*const c_char; 4], // socket, job, run, client_name
    rank: i32,
    world_size: i32,
    local_rank: i32,
    local_world_size: i32,
    device: i32,
    booleans: [i32; 3], // keep_on_death, strict_device, private_daemon
    daemon_program: *const c_char,
    daemon_flags: *const *const c_char,
    daemon_flag_count: usize,
    device_memory_bytes: u64,
    copy_bytes_per_second: f64,
    copy_latency_seconds: f64,
    timeout_seconds: f64,
}

#[repr(C)]
struct RanksOptions {
    struct_size: usize,
    from_environment: i32,
    place: [i32; 4], // rank, world_size, local_rank, local_world_size
    backend: i32,
    master_port: u16,
    texts: [*const c_char; 4], // master_address, job, name, interface_address
    timeout_seconds: f64,
    connect_timeout_seconds: f64,
}

#[repr(C)]
struct Place {
    struct_size: usize,
    rank: i32,
    world_size: i32,
    local: [i32; 2],
}

#[repr(C)]
struct Parameter {
    struct_size: usize,
    name: *const c_char,
    shape: *const i64,
    dimensions: usize,
    numbers: [i32; 6], // data_type, trainable, decay, backward_uses, separate_gradient, update_without_gradient
    unit: i64,
    weight_decay: f64,
    learning_rate_scale: f64,
    group: u64,
}

#[repr(C)]
struct EngineOptions {
    struct_size: usize,
    optimizer: *const c_void,
    loss_scaler: *const c_void,
    data_type: i32,
    numbers: [i32; 11], // from stage to resume
    state_share: f64,
    clip_norm: f64,
    timeout_seconds: f64,
    chunk_elements: u64,
}

#[repr(C)]
struct StepInput {
    struct_size: usize,
    groups: *const c_void,
    group_count: usize,
    learning_rate: f64,
    clip_norm: f64,
    gradient_norm: f64,
    data_position: u64,
    random_state: [u64; 4],
}

const FORWARD: i32 = 0;
const BACKWARD: i32 = 1;
const FLOAT32: i32 = 2;
const ELEMENTS: usize = 64 * 64;

type Fill = extern "C" fn(*mut c_void, u32, u64, *mut f32, u64) -> c_int;
type Handle = *mut c_void;

#[link(name = "geminid_c")]
extern "C" {
    fn geminid_error_new() -> Handle;
    fn geminid_error_free(error: Handle);
    fn geminid_error_message(error: Handle) -> *const c_char;
    fn geminid_ranks_options_init(options: *mut RanksOptions, size: usize);
    fn geminid_ranks_connect(options: *const RanksOptions, ranks: *mut Handle, error: Handle) -> i32;
    fn geminid_ranks_free(ranks: *mut Handle);
    fn geminid_place_init(place: *mut Place, size: usize);
    fn geminid_ranks_place(ranks: Handle, place: *mut Place, error: Handle) -> i32;
    fn geminid_session_options_init(options: *mut SessionOptions, size: usize);
    fn geminid_session_connect(options: *const SessionOptions, session: *mut Handle, error: Handle) -> i32;
    fn geminid_session_free(session: *mut Handle);
    fn geminid_parameter_init(parameter: *mut Parameter, size: usize);
    fn geminid_engine_options_init(options: *mut EngineOptions, size: usize);
    fn geminid_engine_create(
        session: Handle,
        ranks: Handle,
        parameters: *const Parameter,
        count: usize,
        options: *const EngineOptions,
        engine: *mut Handle,
        error: Handle,
    ) -> i32;
    fn geminid_engine_free(engine: *mut Handle);
    fn geminid_engine_initialize(engine: Handle, fill: Fill, context: *mut c_void, error: Handle) -> i32;
    fn geminid_engine_begin_micro_batch(engine: Handle, error: Handle) -> i32;
    fn geminid_engine_use(
        engine: Handle,
        pass: i32,
        parameters: *const u32,
        count: usize,
        stream: u64,
        operation: *mut u64,
        error: Handle,
    ) -> i32;
    fn geminid_engine_weight(engine: Handle, operation: u64, parameter: u32, address: *mut *const f32, error: Handle) -> i32;
    fn geminid_engine_gradient(
        engine: Handle,
        operation: u64,
        parameter: u32,
        address: *mut *mut f32,
        accumulates: *mut c_int,
        error: Handle,
    ) -> i32;
    fn geminid_engine_gradient_written(engine: Handle, operation: u64, parameter: u32, error: Handle) -> i32;
    fn geminid_engine_finish(engine: Handle, operation: u64, stream: u64, error: Handle) -> i32;
    fn geminid_step_input_init(input: *mut StepInput, size: usize);
    fn geminid_engine_step(engine: Handle, input: *const StepInput, result: *mut c_void, error: Handle) -> i32;
}

extern "C" fn fill_zeros(_context: *mut c_void, _parameter: u32, _first: u64, values: *mut f32, count: u64) -> c_int {
    unsafe { std::slice::from_raw_parts_mut(values, count as usize) }.fill(0.0);
    0
}

/// Ends the program with the message of a call that failed.
unsafe fn check(code: i32, error: Handle) {
    if code != 0 {
        eprintln!("code {code}: {}", CStr::from_ptr(geminid_error_message(error)).to_string_lossy());
        std::process::exit(1);
    }
}

unsafe fn make_engine(session: Handle, ranks: Handle, error: Handle) -> Handle {
    let shape = [64i64, 64];
    let mut w: Parameter = zeroed();
    geminid_parameter_init(&mut w, size_of::<Parameter>());
    w.name = b"w\0".as_ptr().cast();
    w.shape = shape.as_ptr();
    w.dimensions = shape.len();
    let mut options: EngineOptions = zeroed();
    geminid_engine_options_init(&mut options, size_of::<EngineOptions>());
    options.data_type = FLOAT32;
    let mut engine = null_mut();
    check(geminid_engine_create(session, ranks, &w, 1, &options, &mut engine, error), error);
    check(geminid_engine_initialize(engine, fill_zeros, null_mut(), error), error);
    engine
}

unsafe fn step(engine: Handle, error: Handle) {
    let (w, mut operation, mut weight) = (0u32, 0u64, null::<f32>());
    check(geminid_engine_begin_micro_batch(engine, error), error);
    check(geminid_engine_use(engine, FORWARD, &w, 1, 0, &mut operation, error), error);
    check(geminid_engine_weight(engine, operation, w, &mut weight, error), error);
    println!("w = {:.3}", *weight);
    check(geminid_engine_finish(engine, operation, 0, error), error);

    let (mut address, mut accumulates) = (null_mut::<f32>(), 0);
    check(geminid_engine_use(engine, BACKWARD, &w, 1, 0, &mut operation, error), error);
    check(geminid_engine_gradient(engine, operation, w, &mut address, &mut accumulates, error), error);
    for gradient in std::slice::from_raw_parts_mut(address, ELEMENTS) {
        *gradient -= 1.0; // it took the weight's place; of half of (w - 1) squared
    }
    check(geminid_engine_gradient_written(engine, operation, w, error), error);
    check(geminid_engine_finish(engine, operation, 0, error), error);

    let mut input: StepInput = zeroed();
    geminid_step_input_init(&mut input, size_of::<StepInput>());
    input.learning_rate = 0.1;
    check(geminid_engine_step(engine, &input, null_mut(), error), error);
}

fn main() {
    unsafe {
        let error = geminid_error_new();
        let mut rank: RanksOptions = zeroed();
        geminid_ranks_options_init(&mut rank, size_of::<RanksOptions>());
        rank.from_environment = 1;
        let mut ranks = null_mut();
        check(geminid_ranks_connect(&rank, &mut ranks, error), error);
        let mut place: Place = zeroed();
        geminid_place_init(&mut place, size_of::<Place>());
        check(geminid_ranks_place(ranks, &mut place, error), error);

        let mut connect: SessionOptions = zeroed();
        geminid_session_options_init(&mut connect, size_of::<SessionOptions>());
        connect.rank = place.rank;
        connect.world_size = place.world_size;
        connect.device_memory_bytes = 24 << 20;
        let mut session = null_mut();
        check(geminid_session_connect(&connect, &mut session, error), error);

        let mut engine = make_engine(session, ranks, error);
        for _ in 0..5 {
            step(engine, error);
        }
        geminid_session_free(&mut session); // in any order
        geminid_engine_free(&mut engine);
        geminid_ranks_free(&mut ranks);
        geminid_error_free(error);
    }
}
