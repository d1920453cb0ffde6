//! Vectors of texts, and how similar they are.
//!
//! Only the direction of a vector counts, so a byte for each dimension is enough: its largest number becomes 127. All
//! computations are in whole numbers until the last division, so every machine finds the same order.

/// The vector of a text, made by a model for embeddings.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// The model, as in `openai/text-embedding-3-small`. Vectors of different models cannot be compared.
    pub model: String,
    /// The vector.
    pub vector: Vector,
}

/// A direction, with a byte for each dimension.
///
/// ```
/// use graphrun_memory::Vector;
///
/// let vector = |numbers: &[f32]| Vector::of(numbers).expect("they have a direction");
/// assert_eq!(vector(&[0.5, -0.25]), vector(&[2.0, -1.0]));
/// assert_eq!(vector(&[1.0, 0.0]).similarity(&vector(&[0.0, 3.0])), 0.0);
/// assert_eq!(Vector::of(&[0.0, 0.0]), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vector {
    bytes: Vec<u8>,
    /// The sum of the squares.
    squares: i64,
}

impl Vector {
    /// Makes a vector of numbers. `None` if they have no direction: there are none, all are zero, or one is not finite.
    #[expect(clippy::cast_possible_truncation, reason = "the numbers are between -127 and 127")]
    pub fn of(numbers: &[f32]) -> Option<Self> {
        let largest = numbers.iter().map(|it| it.abs()).fold(0.0, f32::max);
        if largest == 0.0 || !numbers.iter().all(|it| it.is_finite()) {
            return None;
        }
        // The division comes first: the inverse of a tiny number is not finite.
        let number = |it: &f32| (it / largest * 127.0).round() as i8;
        Self::from_bytes(numbers.iter().map(|it| number(it).cast_unsigned()).collect())
    }

    /// Returns the mark of a text that its model refuses: no vector is similar to it. The model is not asked for its vector again.
    ///
    /// ```
    /// use graphrun_memory::Vector;
    ///
    /// let vector = Vector::of(&[1.0]).expect("it has a direction");
    /// assert_eq!(vector.similarity(&Vector::of_refused_text()), 0.0);
    /// ```
    pub fn of_refused_text() -> Self {
        Self { bytes: Vec::new(), squares: 0 }
    }

    /// Returns whether it is no mark of a refused text.
    pub fn has_direction(&self) -> bool {
        self.squares > 0
    }

    /// Reads the bytes of a vector. `None` if they have no direction.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        let (_, squares) = products(&bytes, &bytes);
        (squares > 0).then_some(Self { bytes, squares })
    }

    /// Returns its bytes: a signed number for each dimension.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the cosine of the angle between two vectors; 0 if they have different dimensions.
    pub fn similarity(&self, other: &Self) -> f64 {
        self.similarity_to(&other.bytes)
    }

    /// Returns the similarity to the vector with these bytes.
    #[expect(clippy::cast_precision_loss, reason = "the sums are far below 2^52")]
    pub(crate) fn similarity_to(&self, other: &[u8]) -> f64 {
        let (product, squares) = products(&self.bytes, other);
        if other.len() != self.bytes.len() || squares == 0 {
            return 0.0;
        }
        product as f64 / ((self.squares as f64).sqrt() * (squares as f64).sqrt())
    }
}

/// Returns the product of two vectors, and that of the second with itself.
fn products(first: &[u8], second: &[u8]) -> (i64, i64) {
    // Sums of 32 bits are faster. The products of a chunk fit into one.
    const CHUNK: usize = 4_096;
    let number = |it: &u8| i32::from(it.cast_signed());
    let chunks = first.chunks(CHUNK).zip(second.chunks(CHUNK));
    chunks.fold((0, 0), |(product, squares), (first, second)| {
        let products = first.iter().zip(second).map(|(a, b)| number(a) * number(b)).sum::<i32>();
        let own = second.iter().map(|it| number(it) * number(it)).sum::<i32>();
        (product + i64::from(products), squares + i64::from(own))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(numbers: &[f32]) -> Vector {
        Vector::of(numbers).unwrap()
    }

    #[test]
    fn numbers_without_a_direction_are_no_vector() {
        for numbers in
            [&[][..], &[0.0], &[1.0, f32::NAN], &[f32::INFINITY], &[f32::NEG_INFINITY, 1.0]]
        {
            assert_eq!(Vector::of(numbers), None, "{numbers:?}");
        }
        assert_eq!(Vector::from_bytes(vec![0, 0]), None);
        assert_eq!(vector(&[f32::MIN_POSITIVE / 8.0]).as_bytes(), [127]);
        assert_eq!(vector(&[f32::MAX, f32::MIN]).as_bytes(), [127, 129]);
    }

    #[test]
    fn a_similarity_is_close_to_the_cosine_of_the_numbers() {
        let numbers = |seed: u16| -> Vec<f32> {
            (0..1_536_u16).map(|it| (f32::from(it % 97 + seed) * 1.7).sin() / 40.0).collect()
        };
        let exact = |a: &[f32], b: &[f32]| {
            let product = |a: &[f32], b: &[f32]| {
                a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()
            };
            product(a, b) / (product(a, a).sqrt() * product(b, b).sqrt())
        };
        for (first, second) in [(0, 1), (0, 2), (3, 40), (5, 5)] {
            let first = numbers(first);
            let second = numbers(second);
            let similarity = vector(&first).similarity(&vector(&second));
            assert!((similarity - exact(&first, &second)).abs() < 0.005, "{similarity}");
        }
        let opposite = vector(&[1.0, -1.0]).similarity(&vector(&[-2.0, 2.0]));
        assert!((opposite + 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_largest_vectors_do_not_overflow() {
        let largest = vector(&vec![1.0; 20_000]);
        assert!((largest.similarity(&largest) - 1.0).abs() < 1e-9);
        let bytes = Vector::from_bytes(vec![0x80; 20_000]).unwrap();
        assert!((bytes.similarity(&largest) + 1.0).abs() < 1e-9);
    }

    #[test]
    fn vectors_of_different_dimensions_are_not_similar() {
        assert!(vector(&[1.0]).similarity(&vector(&[1.0, 1.0])).abs() < f64::EPSILON);
    }
}
