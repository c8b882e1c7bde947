//! What all collectives have in common.

/// The name of the window of a call that opens a collective for itself.
pub(super) fn once(what: &str) -> String {
    format!("{what} (once)")
}

/// Defines a collective, with the methods that all of them have. `$what` says what it is. `open` has the arguments `$arg`
/// before the length, and `$op` after it if it reduces; `$args` and `$ops` are their values in examples.
macro_rules! collective {
    (
        $(#[$doc:meta])*
        $name:ident of $bound:ident, $what:literal, ($($arg:ident)*) $args:literal,
        ($($op:ident)?) $ops:literal => $kind:expr
    ) => {
        $(#[$doc])*
        #[must_use = "the other ranks' calls wait for this one's"]
        pub struct $name<'s, T: $bound, D: tidegate_hal::device::Device>(
            crate::collective::executor::Executor<'s, T, D>,
        );

        impl<'s, T: $bound, D: tidegate_hal::device::Device> $name<'s, T, D> {
            #[doc = concat!("Opens ", $what, ". The call is collective over the [members](crate::Members): with `&s` over")]
            /// all ranks of the job, with `&team.on(&s)` over those of a team. Then ranks have their numbers in the team,
            /// and data is in their order. No open window of these ranks may have this name.
            ///
            /// # Errors
            ///
            /// - [`WindowError::Disagreement`](crate::error::WindowError::Disagreement), on all ranks, if their shapes,
            ///   types, operations or names differ.
            /// - [`Error::NoSuchRank`](crate::error::Error::NoSuchRank), on this rank, if the collective has a root and
            ///   there is no such rank.
            /// - [`WindowError::TooLong`](crate::error::WindowError::TooLong), on this rank, if a vector or block takes
            ///   more than 2^16 pieces ([`Choice::piece`](field@crate::collective::Choice::piece)).
            $(
                #[doc = concat!("- [`WindowError::NotForFloats`](crate::error::WindowError::NotForFloats), on this rank, if `", stringify!($op), "` is")]
                ///   bitwise and the elements are floats.
                ///   [`WindowError::OnlySums`](crate::error::WindowError::OnlySums), on this rank, if they consist of
                ///   complex numbers and it is not [`Op::Sum`](crate::window::Op::Sum), `Op::Keep` or `Op::Replace`.
            )?
            /// - The other errors of [`Window::open`](crate::Window::open).
            ///
            /// # Examples
            ///
            /// ```
            /// # use tidegate::host::prelude::*;
            /// # tidegate::doc::ranks(2, |world| {
            /// # stream!(let s = world.stream()?);
            #[doc = concat!("let it = ", stringify!($name), "::<f64>::open(&s, \"field\", ", $args, "3", $ops, ")?;")]
            /// let pair = world.team("pair", &[1, 0])?;
            #[doc = concat!("let it = ", stringify!($name), "::<f64>::open(&pair.on(&s), \"field\", ", $args, "3", $ops, ")?;")]
            /// # Ok(()) });
            /// ```
            pub fn open(
                on: &impl crate::members::Members<'s, D>,
                name: &str,
                $($arg: usize,)*
                len: usize,
                $($op: tidegate_hal::batch::Op,)?
            ) -> crate::error::Result<Self> {
                Self::open_with(on, name, $($arg,)* len, $($op,)? crate::collective::Choice::on(on.stream()))
            }

            #[doc = concat!("Like [`", stringify!($name), "::open`], with a choice of algorithms.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("The same as [`", stringify!($name), "::open`]. The ranks must choose alike.")]
            ///
            /// # Examples
            ///
            /// ```
            /// # use tidegate::host::prelude::*;
            /// use tidegate::Choice;
            ///
            /// # tidegate::doc::ranks(2, |world| {
            /// # stream!(let s = world.stream()?);
            /// let choice = Choice { short: 1 << 10, ..Choice::on(&s) };
            #[doc = concat!(
                "let it = ", stringify!($name), "::<f64>::open_with(&s, \"field\", ", $args, "3", $ops, ", choice)?;"
            )]
            /// # Ok(()) });
            /// ```
            pub fn open_with(
                on: &impl crate::members::Members<'s, D>,
                name: &str,
                $($arg: usize,)*
                len: usize,
                $($op: tidegate_hal::batch::Op,)?
                choice: crate::collective::Choice,
            ) -> crate::error::Result<Self> {
                let counts = crate::collective::algorithms::Counts::Equal(len);
                Self::make(on, name, $($arg,)* counts, $($op,)? choice)
            }

            fn make(
                on: &impl crate::members::Members<'s, D>,
                name: &str,
                $($arg: usize,)*
                counts: crate::collective::algorithms::Counts,
                $($op: tidegate_hal::batch::Op,)?
                choice: crate::collective::Choice,
            ) -> crate::error::Result<Self> {
                let what = crate::collective::algorithms::What {
                    kind: $kind,
                    counts,
                    reduction: None$(.or(Some(crate::collective::reduction::Reduction::of::<T>($op))))?,
                };
                Ok($name(crate::collective::executor::Executor::open(&on.team(), on.stream(), name, what, choice)?))
            }

            /// Sets a limit for each wait, like [`Window::fail_after`](crate::Window::fail_after). A call that waits
            /// longer for another rank fails, and the collective is revoked on all ranks. Without a limit, a call waits
            /// as long as the peers live. Each rank may choose a limit of its own.
            ///
            /// # Examples
            ///
            /// ```
            /// # use tidegate::host::prelude::*;
            /// use std::time::Duration;
            ///
            /// # tidegate::doc::ranks(2, |world| {
            /// # stream!(let s = world.stream()?);
            #[doc = concat!("let it = ", stringify!($name), "::<f64>::open(&s, \"field\", ", $args, "3", $ops, ")?;")]
            /// let it = it.fail_after(Duration::from_secs(60));
            /// # Ok(()) });
            /// ```
            pub fn fail_after(self, limit: std::time::Duration) -> Self {
                self.0.inbox().fail_after(limit);
                self
            }

            /// The name. Errors give it as the window's name.
            ///
            /// # Examples
            ///
            /// ```
            /// # use tidegate::host::prelude::*;
            /// # tidegate::doc::ranks(2, |world| {
            /// # stream!(let s = world.stream()?);
            #[doc = concat!("let it = ", stringify!($name), "::<f64>::open(&s, \"field\", ", $args, "3", $ops, ")?;")]
            /// assert_eq!(it.name(), "field");
            /// # Ok(()) });
            /// ```
            pub fn name(&self) -> &str {
                self.0.inbox().name()
            }

            /// The id, which is the same on all ranks.
            ///
            /// # Examples
            ///
            /// ```
            /// # use tidegate::host::prelude::*;
            /// # tidegate::doc::ranks(2, |world| {
            /// # stream!(let s = world.stream()?);
            #[doc = concat!("let it = ", stringify!($name), "::<f64>::open(&s, \"field\", ", $args, "3", $ops, ")?;")]
            /// println!("reports call it {}", it.id());
            /// # Ok(()) });
            /// ```
            pub fn id(&self) -> tidegate_hal::ids::WindowId {
                self.0.inbox().id()
            }
        }

        // SAFETY: the leaves are those of the executor, which visits them. Only they mention the brand.
        unsafe impl<'s, T: $bound, D: tidegate_hal::device::Device> crate::carry::Carry<'s, D>
            for $name<'s, T, D>
        {
            type At<'t> = $name<'t, T, D>;

            fn visit(&mut self, visitor: &mut crate::carry::Visitor<'_, D>) {
                self.0.visit(visitor);
            }
        }

        impl<T: $bound, D: tidegate_hal::device::Device> std::fmt::Debug for $name<'_, T, D> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.debug(stringify!($name), f)
            }
        }
    };
}

pub(super) use collective;
