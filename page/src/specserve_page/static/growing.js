/**
 * Elements that are added in slices: thousands at once, as after a time in a tab that nobody saw, would hold up the page
 * until the browser has laid them out.
 */

/** Nodes of a slice. The element that reaches this many is its last. */
export const SLICE = 1000;

export class Growing {
  /**
   * @param {Element} place which the elements are appended to
   * @param {(index: number) => Element} make
   * @param {() => void} onSlice called after each slice
   */
  constructor(place, make, onSlice) {
    this.place = place;
    this.make = make;
    this.onSlice = onSlice;
    this.length = 0;
    this.wanted = 0;
    this.hasDrawn = false;
  }

  /** The first slice comes at once, a further one with each frame. @param {number} length of all elements */
  growTo(length) {
    this.wanted = length;
    if (!this.hasDrawn) this.draw();
  }

  draw() {
    for (let made = 0; this.length < this.wanted && made < SLICE; ) {
      const element = this.make(this.length++);
      made += 1 + element.getElementsByTagName("*").length;
      this.place.append(element);
    }
    this.onSlice();
    this.hasDrawn = true;
    requestAnimationFrame(() => {
      this.hasDrawn = false;
      if (this.length < this.wanted) this.draw();
    });
  }
}
