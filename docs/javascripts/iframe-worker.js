// The search runs in a web worker, which browsers refuse to a page that was opened as a file. There it runs in a hidden
// frame instead. The offline plugin leaves its own script for this out, which it would fetch from the network, because
// this file has the name that it looks for.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.loaded = new Promise((resolve) => { this.frame.loaded = resolve })
      this.frame.answer = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      document.body.append(this.frame)
      const page = this.frame.contentDocument
      page.open()
      page.write(
        "<script>postMessage = (data) => frameElement.answer(data)</script>" +
        `<script src="${url}"></script><script>frameElement.loaded()</script>`
      )
      page.close()
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
  window.Worker = window.IFrameWorker
}
