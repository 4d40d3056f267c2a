//! Parallel work of the crate that the first argument names; the second is a small ONNX model. As in units.py.
use std::error::Error;
use std::io::BufRead;
use std::time::Instant;

type Done = Result<(), Box<dyn Error + Send + Sync>>;

/// Works once and says so; then for each line with seconds.
fn serve(mut work: impl FnMut() -> Done) -> Done {
    work()?;
    println!("{{}}");
    for line in std::io::stdin().lock().lines() {
        let most: f64 = line?.parse()?;
        let (start, mut units) = (Instant::now(), 0);
        while start.elapsed().as_secs_f64() < most {
            work()?;
            units += 1;
        }
        println!("{{\"units\": {units}, \"seconds\": {:.6}}}", start.elapsed().as_secs_f64());
    }
    Ok(())
}

fn ort(model: &str) -> Done {
    let environment = ort::environment::init().build()?;
    let mut session = ort::session::Session::builder(&environment)?.commit_from_file(model)?;
    serve(|| {
        let rows = ort::value::Tensor::from_array(([64usize, 256], vec![1f32; 64 * 256]))?;
        session.run(ort::inputs!["input" => rows])?;
        Ok(())
    })
}

fn candle() -> Done {
    let device = candle_core::Device::Cpu;
    let matrix = candle_core::Tensor::ones((600, 600), candle_core::DType::F32, &device)?;
    serve(|| {
        matrix.matmul(&matrix)?;
        Ok(())
    })
}

fn tokenizers() -> Done {
    let vocabulary = [("hello".to_string(), 0), ("world".to_string(), 1), ("[UNK]".to_string(), 2)];
    let model = tokenizers::models::wordlevel::WordLevel::builder()
        .vocab(vocabulary.into_iter().collect())
        .unk_token("[UNK]".to_string())
        .build()?;
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    tokenizer.with_pre_tokenizer(Some(tokenizers::pre_tokenizers::whitespace::Whitespace {}));
    serve(|| {
        tokenizer.encode_batch(vec!["hello world"; 10_000], false)?;
        Ok(())
    })
}

fn main() -> Done {
    let given: Vec<String> = std::env::args().collect();
    match given[1].as_str() {
        "ort" => ort(&given[2]),
        "candle-core" => candle(),
        _ => tokenizers(),
    }
}
