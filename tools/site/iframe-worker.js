// The search runs in a worker, and browsers start none for pages that are read from files. This is one in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const { contentWindow: inside, contentDocument: page } = this.frame;
      inside.postMessage = (data) => setTimeout(() => this.onmessage?.({ data: structuredClone(data) }));
      const script = page.createElement("script");
      this.loaded = new Promise((resolve) => script.addEventListener("load", resolve));
      script.addEventListener("error", (event) => this.onerror?.(event));
      script.src = new URL(url, location.href);
      page.head.append(script);
    }

    postMessage(data) {
      const copy = structuredClone(data);
      this.loaded.then(() => this.frame.contentWindow?.onmessage({ data: copy }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
