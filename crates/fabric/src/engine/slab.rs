//! Numbered places that are reused.

/// Values by number. A number is free again when its value is taken.
pub(super) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Slab {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    /// The number that the next value gets.
    pub(super) fn next(&self) -> usize {
        self.free.last().copied().unwrap_or(self.places.len())
    }

    pub(super) fn add(&mut self, value: T) -> usize {
        match self.free.pop() {
            Some(number) => {
                self.places[number] = Some(value);
                number
            }
            None => {
                self.places.push(Some(value));
                self.places.len() - 1
            }
        }
    }

    pub(super) fn take(&mut self, number: usize) -> Option<T> {
        let value = self.places.get_mut(number)?.take()?;
        self.free.push(number);
        Some(value)
    }

    pub(super) fn get(&mut self, number: usize) -> Option<&mut T> {
        self.places.get_mut(number)?.as_mut()
    }

    /// How many numbers were given, with those that are free again.
    pub(super) fn numbers(&self) -> usize {
        self.places.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }

    pub(super) fn at(&self, number: usize) -> Option<&T> {
        self.places.get(number)?.as_ref()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Takes all values. Every number is free again.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.free.clear();
        std::mem::take(&mut self.places).into_iter().flatten()
    }
}
