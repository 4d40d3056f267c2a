//! One unit of parallel work of the crate that the first argument names; the second is a small ONNX model.
use std::error::Error;
use std::io::Read;

type Done = Result<(), Box<dyn Error + Send + Sync>>;

/// Says that the work is done, with the threads that it was done by.
fn until_the_end() -> Done {
    println!("{{}}");
    std::io::stdin().read_to_string(&mut String::new())?;
    Ok(())
}

fn ort(model: &str) -> Done {
    let environment = ort::environment::init().build()?;
    let mut session = ort::session::Session::builder(&environment)?.commit_from_file(model)?;
    let rows = ort::value::Tensor::from_array(([64usize, 256], vec![1f32; 64 * 256]))?;
    session.run(ort::inputs!["input" => rows])?;
    until_the_end()
}

fn candle() -> Done {
    let device = candle_core::Device::Cpu;
    let matrix = candle_core::Tensor::ones((600, 600), candle_core::DType::F32, &device)?;
    matrix.matmul(&matrix)?;
    until_the_end()
}

fn tokenizers() -> Done {
    let vocabulary = [("hello".to_string(), 0), ("world".to_string(), 1), ("[UNK]".to_string(), 2)];
    let model = tokenizers::models::wordlevel::WordLevel::builder()
        .vocab(vocabulary.into_iter().collect())
        .unk_token("[UNK]".to_string())
        .build()?;
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    tokenizer.with_pre_tokenizer(Some(tokenizers::pre_tokenizers::whitespace::Whitespace {}));
    tokenizer.encode_batch(vec!["hello world"; 10_000], false)?;
    until_the_end()
}

fn main() -> Done {
    let given: Vec<String> = std::env::args().collect();
    match given[1].as_str() {
        "ort" => ort(&given[2]),
        "candle-core" => candle(),
        _ => tokenizers(),
    }
}
